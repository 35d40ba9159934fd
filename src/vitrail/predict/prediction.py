"""What a model answers to one picture, and to several: records that read well when printed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from vitrail.bulk.rows import Row, facts
from vitrail.config import Frozen
from vitrail.engines.base import Numbers
from vitrail.images.loader import Batch

SHOWN = 20  # rows a list of predictions prints


class Answer(Frozen, frozen=True, kw_only=True):
    """One class and how probable it is."""

    label: str
    index: int
    probability: float

    def __str__(self) -> str:
        return f"{self.label} {self.probability:.1%}"


class Prediction(Row, frozen=True, kw_only=True):
    """One picture: the most probable class, and the next ones in `top`."""

    label: str | None = None
    index: int | None = None
    probability: float | None = None
    top: tuple[Answer, ...] = ()

    def __repr__(self) -> str:
        return f"{self.path}: {self.error or ', '.join(map(str, self.top))}"

    __str__ = __repr__


class Predictions(list[Prediction]):
    """One Prediction per picture, good and bad, in order."""

    @property
    def errors(self) -> list[Prediction]:
        """The pictures that could not be read."""
        return [row for row in self if row.error]

    def __repr__(self) -> str:
        lines = [repr(row) for row in self[:SHOWN]]
        more = f"… {len(self) - SHOWN:,} more" if len(self) > SHOWN else ""
        bad = f", {len(self.errors):,} that cannot be read" if self.errors else ""
        return "\n".join(filter(None, [*lines, more, f"{len(self):,} pictures{bad}"]))

    __str__ = __repr__


def predictions(batch: Batch, logits: Numbers | None, labels: Sequence[str], top: int) -> list[Prediction]:
    """A row for every file of a batch."""
    good = iter([] if logits is None else answers(probabilities(logits), labels, top))
    return [Prediction(**facts(file)) if file.error else answered(facts(file), next(good)) for file in batch.files]


def answered(known: dict[str, Any], top: tuple[Answer, ...]) -> Prediction:
    """A picture that was read."""
    first = top[0]
    return Prediction(**known, label=first.label, index=first.index, probability=first.probability, top=top)


def probabilities(logits: Numbers) -> NDArray[np.float64]:
    """The softmax."""
    powers = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)  # type: ignore[no-any-return]


def answers(chances: NDArray[np.float64], labels: Sequence[str], top: int) -> list[tuple[Answer, ...]]:
    """The `top` most probable classes of every row."""
    return [
        tuple(Answer(label=labels[index], index=index, probability=float(f"{row[index]:.6g}")) for index in first)
        for row, first in zip(chances, most_probable(chances, top).tolist(), strict=True)
    ]


def most_probable(chances: NDArray[np.float64], count: int) -> NDArray[np.intp]:
    """Class numbers, most probable first; equal ones in the order of their numbers."""
    count = min(count, chances.shape[1])
    some = np.sort(np.argpartition(-chances, count - 1, axis=1)[:, :count], axis=1)  # of 21,000 classes few matter
    order = np.argsort(-np.take_along_axis(chances, some, 1), axis=1, kind="stable")
    return np.take_along_axis(some, order, 1)


# The table


def columns(top: int) -> list[str]:
    """Its header."""
    return ["path", "status", "error", "width", "height", "label", "index", "probability", f"top{top}", "notes"]


def as_line(row: Prediction, top: int) -> bytes:
    """A row as a line of JSON, with the columns of the table."""
    fields = {name: getattr(row, "top" if name == f"top{top}" else name) for name in columns(top)}
    return msgspec.json.encode(fields) + b"\n"


def schema(pyarrow: Any, top: int) -> Any:
    """The columns of a Parquet table."""
    text, count, number = pyarrow.string(), pyarrow.int32(), pyarrow.float64()
    answer = pyarrow.struct([("label", text), ("index", count), ("probability", number)])
    kinds = {"width": count, "height": count, "index": count, "probability": number, f"top{top}": pyarrow.list_(answer)}
    kinds["notes"] = pyarrow.list_(text)
    return pyarrow.schema([(name, kinds.get(name, text)) for name in columns(top)])
