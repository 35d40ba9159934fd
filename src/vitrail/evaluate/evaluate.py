"""vitrail.evaluate: a model and labelled pictures to everything there is to say about its answers."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitrail.engines.base import Engine, EngineName, Precision
from vitrail.engines.choose import open_engine
from vitrail.errors import DataError, UsageError
from vitrail.evaluate.answering import Cost, Progress, Row, answer
from vitrail.evaluate.metrics import Answered, Metrics, measure
from vitrail.evaluate.resampling import DRAWS, SEED
from vitrail.evaluate.task import Task, chosen_split, make_task
from vitrail.images.decode import DEFAULT, Decoding
from vitrail.images.folder import read_data

if TYPE_CHECKING:
    from vitrail.model.vit import VisionTransformer

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
    channels: int = 3  # how the pictures were read; a report reads some of them again
    decoding: Decoding = DEFAULT

    @property
    def bad(self) -> tuple[Row, ...]:
        """The files that could not be read."""
        return tuple(row for row in self.rows if row.error)

    @property
    def good(self) -> tuple[Row, ...]:
        """The files that were answered, in the order of their scores."""
        return tuple(row for row in self.rows if row.place is not None)

    def __getitem__(self, name: str) -> float | None:
        """One measure by name: evaluation["top1"]."""
        return self.metrics.values[name].value


def evaluate(
    model: VisionTransformer | str | os.PathLike[str],
    data: str | os.PathLike[str],
    *,
    split: str | None = None,
    remap: bool | Mapping[str, str] = False,
    labels_split: str = "",
    engine: EngineName = "auto",
    precision: Precision | None = None,
    batch_size: int = BATCH,
    workers: int | None = None,
    max_bad: float = MAX_BAD,
    out: str | os.PathLike[str] | None = None,
    draws: int = DRAWS,
    seed: int = SEED,
    say: Callable[[str], None] = lambda line: None,
    progress: Progress | None = None,
) -> Evaluation:
    """How good a model is on one split of labelled pictures; with `out`, a report and tables in that folder.

    `labels_split="|"` is for pictures with several labels each, written as "cat|dog", and a yes-or-no per class.
    """
    refuse_inside(out, data)
    dataset = read_data(data)
    split = chosen_split(dataset, split, data)
    opened = open_engine_for(model, engine=engine, precision=precision, batch=batch_size, say=say)
    task = make_task(dataset, split, opened.card.labels, remap=remap, labels_split=labels_split)
    about = {"model": name_of(model), "data": os.fspath(data), "split": split, "skipped": dataset.skipped}
    result = judge(opened, task, workers=workers, draws=draws, seed=seed, progress=progress, about=about)
    if out is not None:
        from vitrail.evaluate.save import save

        save(result, Path(out))
    check_bad(result, max_bad, out)
    return result


def judge(
    engine: Engine,
    task: Task,
    *,
    workers: int | None = None,
    decoding: Decoding = DEFAULT,
    draws: int = DRAWS,
    seed: int = SEED,
    progress: Progress | None = None,
    about: Mapping[str, Any] | None = None,
) -> Evaluation:
    """Answers and measures for pictures whose right classes are known. What training calls at its end."""
    rows, answered, cost = answer(
        *(engine, task.samples, task.targets),
        several=task.several,
        workers=workers,
        decoding=decoding,
        progress=progress,
    )
    metrics = measure(answered, draws=draws, seed=seed)
    return Evaluation(
        rows=tuple(rows),
        answered=answered,
        metrics=metrics,
        cost=cost,
        about=about or {},
        left_out=task.left_out,
        channels=len(engine.card.preprocess.mean),
        decoding=decoding,
    )


def open_engine_for(model: VisionTransformer | str | os.PathLike[str], **asked: Any) -> Engine:
    """An engine for a model, or for a checkpoint: one that was opened before is not even loaded."""
    if isinstance(model, str | os.PathLike):
        from vitrail.checkpoint.place import files_of, locate

        files = files_of(locate(os.fspath(model)))
        return open_engine(lambda: loaded(model), files=files, **asked)
    return open_engine(model, **asked)


def loaded(name: str | os.PathLike[str]) -> VisionTransformer:
    """The model of a checkpoint; torch is imported only now."""
    from vitrail.checkpoint import load

    return load(os.fspath(name))


def name_of(model: VisionTransformer | str | os.PathLike[str]) -> str:
    """What a report calls the model."""
    if isinstance(model, str | os.PathLike):
        return os.fspath(model)
    origin = getattr(model, "origin", None)
    return origin.path if origin else "a model in memory"


def refuse_inside(out: str | os.PathLike[str] | None, data: str | os.PathLike[str]) -> None:
    """A report among the pictures would be taken for one of their classes the next time."""
    if out is not None and Path(data).is_dir() and Path(out).resolve().is_relative_to(Path(data).resolve()):
        raise UsageError(f"{out} is inside the data, {data}.", "A folder of its own.", "Choose another --out.")


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
