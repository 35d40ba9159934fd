"""Features of a job on the disk, read a slice at a time: an array whose size costs no memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vitrail.bulk.parts import Part
from vitrail.engines.base import Numbers


class Stored:
    """The numbers of all parts, one behind the other; `shape` is that of all, as an array has it."""

    def __init__(self, parts: Sequence[Part], feature: Sequence[int]) -> None:
        self.parts = parts
        self.shape = (parts[-1].end if parts else 0, *feature)
        self.width = int(np.prod(feature))

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> Numbers:
        """Some rows that follow each other."""
        first, end, _ = rows.indices(len(self))
        return np.concatenate([np.empty((0, *self.shape[1:]), np.float32), *self._pieces(first, end)])

    def _pieces(self, first: int, end: int) -> list[Numbers]:
        return [
            self._of(part, max(first, part.first), min(end, part.end))
            for part in self.parts
            if part.first < end and first < part.end
        ]

    def _of(self, part: Part, first: int, end: int) -> Numbers:
        count, offset = (end - first) * self.width, 4 * (first - part.first) * self.width
        return np.fromfile(part.numbers, "<f4", count, offset=offset).reshape(-1, *self.shape[1:])
