"""The rows of a job as they come: parts that are whole or not there, each named by the rows it holds.

part-000000000-000004096.jsonl   a line of JSON per file
part-000000000-000004096.f32     beside it, where a verb has numbers for every file: so many bytes each

A part takes its name when it is on the disk. A kill costs what was not yet committed: SECONDS of work at most.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from vitrail.errors import EnvironmentProblem, UsageError
from vitrail.runs.commit import sync_folder

ROWS, SECONDS = 4096, 5.0  # in a part, at most; time between two commits
NAME = re.compile(r"part-(\d{9})-(\d{9})\.jsonl")
WRITING = ".writing"


@dataclass(frozen=True)
class Part:
    """Rows `first` to `end` (without it) of the list."""

    first: int
    end: int
    rows: Path
    numbers: Path

    def lines(self) -> Iterator[bytes]:
        """Its rows."""
        with self.rows.open("rb") as file:
            yield from file


def finished(folder: Path, row_bytes: int) -> list[Part]:
    """The parts of a folder, from the first row on without a gap; `row_bytes` are the numbers of each row."""
    named = sorted((part_of(path) for path in folder.iterdir() if NAME.fullmatch(path.name)), key=lambda p: p.first)
    for part, expected in zip(named, [0, *(part.end for part in named)], strict=False):
        numbers = part.numbers.stat().st_size if part.numbers.exists() else 0
        if part.first != expected or numbers != (part.end - part.first) * row_bytes:
            raise UsageError(
                f"{folder} is damaged at row {expected:,}.",
                "Parts that follow each other.",
                f"Remove {folder}; begin again.",
            )
    return named


def part_of(path: Path) -> Part:
    """What the name of a part says."""
    found = NAME.fullmatch(path.name)
    assert found
    return Part(int(found[1]), int(found[2]), path, path.with_suffix(".f32"))


class Parts:
    """Takes rows in order, from `first` on, and commits them now and then; and at the end, unless it is an accident."""

    def __init__(self, folder: Path, first: int) -> None:
        self.folder, self.first, self.end = folder, first, first
        self.files: dict[str, BinaryIO] = {}
        self.committed = time.monotonic()

    def add(self, rows: Sequence[bytes], numbers: bytes = b"") -> None:
        """Some rows, and their numbers if they have any."""
        try:
            self._file("jsonl").writelines(rows)
            if numbers:
                self._file("f32").write(numbers)
        except OSError as error:
            raise no_room(self.folder, error) from error
        self.end += len(rows)
        if self.end - self.first >= ROWS or time.monotonic() - self.committed >= SECONDS:
            self.commit()

    def commit(self) -> None:
        """What there is becomes a part; the rows take their name last, and vouch for the numbers."""
        name = f"part-{self.first:09}-{self.end:09}"
        try:
            for suffix in sorted(self.files):  # f32 before jsonl
                file = self.files.pop(suffix)
                with file:
                    file.flush()
                    os.fsync(file.fileno())
                Path(file.name).rename(self.folder / f"{name}.{suffix}")
            sync_folder(self.folder)
        except OSError as error:
            raise no_room(self.folder, error) from error
        self.first, self.committed = self.end, time.monotonic()

    def __enter__(self) -> Parts:
        for path in list(self.folder.iterdir()):
            unnamed = path.suffix == ".f32" and not path.with_suffix(".jsonl").exists()
            if unnamed or path.name.startswith(WRITING):
                path.unlink()  # what a kill left of a part
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Whatever ends the job, the rows that are there are good; only where they cannot be written they are lost."""
        if kind is None:
            self.commit()
        else:
            with suppress(EnvironmentProblem):
                self.commit()
        for file in self.files.values():
            with suppress(OSError):
                file.close()

    def _file(self, suffix: str) -> BinaryIO:
        if suffix not in self.files:
            self.files[suffix] = (self.folder / f"{WRITING}.{suffix}").open("wb")
        return self.files[suffix]


def no_room(folder: Path, error: OSError) -> EnvironmentProblem:
    """The disk is full or failing."""
    return EnvironmentProblem(
        f"{folder} cannot be written to ({error.strerror or error}).",
        "A folder with room for the results.",
        "Free some space and go on with --resume; what is there already is safe.",
    )
