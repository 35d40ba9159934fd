"""vitrail.evaluate: a model and labelled pictures to everything there is to say about its answers.

result = vitrail.evaluate(model, "flowers")              # model: in memory, or the name of a checkpoint
result["top1"], result.metrics.values["top1"].low        # a measure, and where its 95% interval begins
vitrail.evaluate("runs/flowers", "flowers", out="runs/report")   # report.html and tables
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vitrail.bulk.running import Running
from vitrail.bulk.settings import BATCH, EngineConfig, PictureConfig
from vitrail.engines.base import Engine, EngineName, Precision
from vitrail.engines.for_model import ModelLike, name_of
from vitrail.errors import DataError, UsageError
from vitrail.evaluate.answering import Cost, Row, Told, answer
from vitrail.evaluate.metrics import Answered, Metrics, measure
from vitrail.evaluate.resampling import DRAWS, SEED
from vitrail.evaluate.task import Asked, Task, task_for

MAX_BAD = 0.1


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
    pictures: PictureConfig = field(default_factory=PictureConfig)

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
    model: ModelLike,
    data: str | os.PathLike[str],
    *,
    split: str | None = None,
    remap: bool | Mapping[str, str] = False,
    labels_split: str = "",
    out: str | os.PathLike[str] | None = None,
    max_bad: float = MAX_BAD,
    engine: EngineName = "auto",
    precision: Precision | None = None,
    batch_size: int = BATCH,
    threads: int = 0,
    reading: PictureConfig | None = None,
    fields: Mapping[str, Any] | None = None,
    draws: int = DRAWS,
    seed: int = SEED,
    say: Callable[[str], None] | None = None,
    told: Told | None = None,
) -> Evaluation:
    """How good a model is on one split of labelled pictures; with `out`, a report and tables in that folder.

    `labels_split="|"` is for pictures with several labels each, written as "cat|dog", and a yes-or-no per class.
    The intervals come from `draws` samples of the pictures, which follow from `seed`.
    """
    how = EngineConfig(name=engine, precision=precision, batch_size=batch_size, threads=threads)
    running = Running(model, fields or {}, how, reading or PictureConfig(), say)
    asked = Asked(data, split, remap, labels_split)
    result = evaluated(running, asked, out=out, draws=draws, seed=seed, told=told)
    check_bad(result, max_bad, out)
    return result


def evaluated(
    running: Running,
    asked: Asked,
    *,
    out: str | os.PathLike[str] | None = None,
    draws: int = DRAWS,
    seed: int = SEED,
    told: Told | None = None,
) -> Evaluation:
    """The same, of a model as it is to be run; the report is written however many pictures are bad."""
    refuse_inside(out, asked.data)
    dataset, split = asked.read()
    engine = running.open()
    task = task_for(dataset, split, engine.card.labels, asked)
    about = {"model": name_of(running.model), "data": os.fspath(asked.data), "split": split, "skipped": dataset.skipped}
    result = judge(engine, task, running.pictures, about=about, draws=draws, seed=seed, told=told)
    if out is not None:
        from vitrail.evaluate.save import save

        save(result, Path(out))
    return result


def judge(
    engine: Engine,
    task: Task,
    pictures: PictureConfig,
    *,
    about: Mapping[str, Any],
    draws: int = DRAWS,
    seed: int = SEED,
    told: Told | None = None,
) -> Evaluation:
    """Answers and measures for pictures whose right classes are known. What training calls at its end."""
    rows, answered, cost = answer(engine, task, pictures, told)
    metrics = measure(answered, draws=draws, seed=seed)
    channels = len(engine.card.preprocess.mean)
    return Evaluation(tuple(rows), answered, metrics, cost, about, task.left_out, channels, pictures)


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
