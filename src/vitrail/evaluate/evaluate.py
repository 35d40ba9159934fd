"""vitrail.evaluate: a model and labelled pictures to everything there is to say about its answers."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vitrail.engines.base import Engine, EngineName, Precision
from vitrail.engines.choose import open_engine
from vitrail.errors import DataError, UsageError
from vitrail.evaluate.answering import Cost, Progress, Row, answer
from vitrail.evaluate.metrics import Answered, Metrics, measure
from vitrail.evaluate.ranking import Flags
from vitrail.evaluate.resampling import DRAWS, SEED
from vitrail.images.decode import DEFAULT, Decoding
from vitrail.images.folder import WHOLE, Dataset, Sample, read_data
from vitrail.images.labels import match_labels

if TYPE_CHECKING:
    from vitrail.model.vit import VisionTransformer

SPLITS = ("val", "test", WHOLE)  # which one is taken where none is asked for
MAX_BAD = 0.1
BATCH = 16


@dataclass(frozen=True)
class Evaluation:
    """Every file's row, every score, every measure, and what they cost."""

    rows: tuple[Row, ...]
    answered: Answered
    metrics: Metrics
    cost: Cost
    about: Mapping[str, Any] = field(default_factory=dict)  # model, data, split ... as a report shows them
    left_out: Mapping[str, int] = field(default_factory=dict)  # pictures of classes the model does not know

    @property
    def bad(self) -> tuple[Row, ...]:
        """The files that could not be read."""
        return tuple(row for row in self.rows if row.error)

    def __getitem__(self, name: str) -> float | None:
        """One measure by name: evaluation["top1"]."""
        return self.metrics.values[name].value


def evaluate(
    model: VisionTransformer | str | os.PathLike[str],
    data: str | os.PathLike[str],
    *,
    split: str | None = None,
    remap: bool | Mapping[str, str] = False,
    engine: EngineName = "auto",
    precision: Precision | None = None,
    batch_size: int = BATCH,
    max_bad: float = MAX_BAD,
    out: str | os.PathLike[str] | None = None,
    draws: int = DRAWS,
    seed: int = SEED,
    say: Callable[[str], None] = lambda line: None,
    progress: Progress | None = None,
) -> Evaluation:
    """How good a model is on one split of labelled pictures; with `out`, a report and tables in that folder."""
    dataset = read_data(data)
    split = split or default_split(dataset, data)
    if split not in dataset.splits:
        raise UsageError(f"{data} has no split {split!r}.", f"One of {', '.join(dataset.splits)}.", "")
    opened = open_engine_for(model, engine=engine, precision=precision, batch=batch_size, say=say)
    samples, targets, left_out = task(dataset, split, opened.card.labels, remap)
    about = {"model": name_of(model), "data": os.fspath(data), "split": split, "skipped": dataset.skipped}
    result = judge(opened, samples, targets, draws=draws, seed=seed, progress=progress, about=about, left_out=left_out)
    if out is not None:
        from vitrail.evaluate.save import save

        save(result, Path(out))
    check_bad(result, max_bad, out)
    return result


def judge(
    engine: Engine,
    samples: Sequence[Sample],
    targets: Flags,
    *,
    several: bool = False,
    workers: int | None = None,
    decoding: Decoding = DEFAULT,
    draws: int = DRAWS,
    seed: int = SEED,
    progress: Progress | None = None,
    about: Mapping[str, Any] | None = None,
    left_out: Mapping[str, int] | None = None,
) -> Evaluation:
    """Answers and measures for samples whose right classes are known: `targets` has a row for each label number.

    `several` is for models with one yes-or-no per class. What training calls at its end.
    """
    rows, answered, cost = answer(
        engine, samples, targets, several=several, workers=workers, decoding=decoding, progress=progress
    )
    metrics = measure(answered, draws=draws, seed=seed)
    return Evaluation(tuple(rows), answered, metrics, cost, about or {}, left_out or {})


def task(
    dataset: Dataset, split: str, labels: Sequence[str], remap: bool | Mapping[str, str]
) -> tuple[tuple[Sample, ...], Flags, dict[str, int]]:
    """The pictures to answer, the right class of each label in the model's numbers, and what is left out."""
    if not labels:
        raise UsageError("The model has no classes.", "A model with a classifier.", "Use vitrail embed for features.")
    numbers = match_labels(dataset.classes, labels, remap=remap)
    targets = np.zeros((len(numbers), len(labels)), bool)
    for label, number in enumerate(numbers):
        if number is not None:
            targets[label, number] = True
    counts = dataset.counts()
    unknown = {dataset.classes[label]: 0 for label, number in enumerate(numbers) if number is None}
    left_out = {name: counts[name][split] for name in unknown}
    known = tuple(sample for sample in dataset.splits[split] if numbers[sample.label] is not None)
    if not known:
        raise DataError(f"No picture of {split} is of a class the model knows.", "At least one.", "")
    return known, targets, left_out


def default_split(dataset: Dataset, data: str | os.PathLike[str]) -> str:
    """The split a model has not been trained on."""
    for split in SPLITS:
        if split in dataset.splits:
            return split
    raise DataError(
        f"{data} has only a train split.", "A val or test split.", "Use --split train if that is what is meant."
    )


def open_engine_for(model: VisionTransformer | str | os.PathLike[str], **asked: Any) -> Engine:
    """An engine for a model, or for a checkpoint."""
    if isinstance(model, str | os.PathLike):
        from vitrail.checkpoint import load

        return open_engine(lambda: load(os.fspath(model)), **asked)
    return open_engine(model, **asked)


def name_of(model: VisionTransformer | str | os.PathLike[str]) -> str:
    """What a report calls the model."""
    if isinstance(model, str | os.PathLike):
        return os.fspath(model)
    origin = getattr(model, "origin", None)
    return origin.path if origin else "a model in memory"


def check_bad(result: Evaluation, max_bad: float, out: str | os.PathLike[str] | None) -> None:
    """Too many unreadable files are a problem of the data, not a matter of measuring the rest."""
    bad, count = len(result.bad), len(result.rows)
    if bad > (max_bad if max_bad >= 1 else max_bad * count) or bad == count:
        first = result.bad[0]
        raise DataError(
            f"{bad} of {count:,} pictures cannot be read, such as {first.path} ({first.error}).",
            f"At most {f'{max_bad:g}' if max_bad >= 1 else f'{max_bad:.0%}'} (--max-bad).",
            f"See {Path(out) / 'bad_images.csv'}; repair them, or raise --max-bad." if out else "Repair them.",
        )
