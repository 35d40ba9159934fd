"""The features of pictures, and what can be said about them as a set: who is near whom, and who is there twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vitrail.bulk.rows import Row
from vitrail.config import Frozen
from vitrail.embed.looks import Kind, Look, duplicates
from vitrail.embed.nearest import NOWHERE, nearest
from vitrail.embed.stored import Stored
from vitrail.engines.base import Numbers

SHOWN = 20  # rows a set of embeddings prints


class Neighbour(Frozen, frozen=True, kw_only=True):
    """Another picture of the set, and the cosine between the features."""

    path: str
    similarity: float

    def __str__(self) -> str:
        return f"{self.path} {self.similarity:.3f}"


class Seen(Row, frozen=True, kw_only=True):
    """One picture as it came along: what is kept of it beside its features."""

    look: Look | None = None


class Embedded(Row, frozen=True, kw_only=True):
    """One picture among others."""

    duplicate_of: str | None = None  # an earlier picture
    duplicate: Kind | None = None  # exact: the same pixels for the model. near: the same to look at
    neighbours: tuple[Neighbour, ...] | None = None  # None: not asked for

    def __repr__(self) -> str:
        same = f", {self.duplicate} duplicate of {self.duplicate_of}" if self.duplicate else ""
        near = f", near {', '.join(map(str, self.neighbours))}" if self.neighbours else ""
        return f"{self.path}: {self.error or f'{self.width} x {self.height}{same}{near}'}"

    __str__ = __repr__


@dataclass(frozen=True, repr=False)
class Embeddings(Sequence[Embedded]):
    """A row and its features for every picture; those of one that cannot be read are NaN."""

    rows: list[Embedded]
    values: Numbers  # pictures x dim, or pictures x rows x cols x dim

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        return self.rows[index]

    def __iter__(self) -> Iterator[Embedded]:
        return iter(self.rows)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.values, dtype, copy=copy)

    @property
    def errors(self) -> list[Embedded]:
        """The pictures that could not be read."""
        return [row for row in self.rows if row.error]

    @property
    def summary(self) -> str:
        """One line on all of them."""
        shape = " x ".join(f"{count:,}" for count in self.values.shape)
        twice = sum(row.duplicate is not None for row in self.rows)
        told = {"repeated": twice, "that cannot be read": len(self.errors)}
        counts = "".join(f", {count:,} {what}" for what, count in told.items() if count)
        return f"{len(self):,} pictures{counts}: features {shape}"

    def __repr__(self) -> str:
        lines = [repr(row) for row in self.rows[:SHOWN]]
        more = f"… {len(self) - SHOWN:,} more" if len(self) > SHOWN else ""
        return "\n".join(filter(None, [*lines, more, self.summary]))


def embedded(seen: Sequence[Seen], values: Numbers | Stored, neighbours: int) -> list[Embedded]:
    """Every picture with its duplicates and, where they are asked for, its nearest neighbours."""
    return list(told_apart(seen, nearest(values, neighbours) if neighbours else None))


def told_apart(seen: Sequence[Seen], near: tuple[NDArray[np.int64], Numbers] | None) -> Iterator[Embedded]:
    """Every picture with what it shares with others; `near` are places and cosines."""
    twice = duplicates([row.look for row in seen])
    for place, row in enumerate(seen):
        first, kind = twice.get(place, (None, None))
        yield Embedded(
            path=row.path,
            status=row.status,
            error=row.error,
            width=row.width,
            height=row.height,
            notes=row.notes,
            duplicate_of=None if first is None else seen[first].path,
            duplicate=kind,
            neighbours=None if near is None else beside(seen, near[0][place], near[1][place]),
        )


def beside(seen: Sequence[Seen], places: NDArray[np.int64], cosines: Numbers) -> tuple[Neighbour, ...]:
    """The neighbours of one picture, as far as there are any."""
    found = zip(places.tolist(), cosines.tolist(), strict=True)
    return tuple(
        Neighbour(path=seen[place].path, similarity=float(f"{cosine:.6g}"))
        for place, cosine in found
        if place != NOWHERE
    )


# The table


def columns(neighbours: bool) -> list[str]:
    """Its header."""
    known = ["path", "status", "error", "width", "height", "duplicate_of", "duplicate", "notes"]
    return [*known, "neighbours"] if neighbours else known


def schema(pyarrow: Any, neighbours: bool, feature: Any) -> Any:
    """The columns of a Parquet table; `feature` is the shape of one row of features."""
    text, count, number = pyarrow.string(), pyarrow.int32(), pyarrow.float32()
    near = pyarrow.list_(pyarrow.struct([("path", text), ("similarity", number)]))
    kinds = {"width": count, "height": count, "notes": pyarrow.list_(text), "neighbours": near}
    fields = [pyarrow.field(name, kinds.get(name, text)) for name in columns(neighbours)]
    shape = {"shape": ",".join(map(str, feature))}
    size = int(np.prod(feature))
    return pyarrow.schema([*fields, pyarrow.field("feature", pyarrow.list_(number, size), metadata=shape)])
