"""vitrail.predict: pictures in, the most probable classes out; for one, for a list, or for any number of files.

vitrail.predict(model, "cat.jpg")                        # a Prediction
vitrail.predict(model, ["cat.jpg", "dog.jpg"])           # Predictions; a folder or a pattern, too
vitrail.predict(model, "photos", out="photos.csv")       # a row per file, resumable after any kill
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from vitrail.bulk import job, table
from vitrail.bulk.rows import check_readable
from vitrail.bulk.running import Running
from vitrail.bulk.settings import BATCH, EngineConfig, PictureConfig
from vitrail.bulk.sources import Pictures, every, file_names, is_one
from vitrail.bulk.stream import stream
from vitrail.bulk.written import Written, summary
from vitrail.engines.base import Engine, EngineName, Precision
from vitrail.engines.for_model import ModelLike
from vitrail.errors import UsageError
from vitrail.images.decode import Source
from vitrail.images.listing import Item, list_inputs
from vitrail.predict.prediction import Prediction, Predictions, as_line, columns, predictions, schema

TOP = 5


def predict(
    model: ModelLike,
    pictures: Pictures,
    *,
    top: int = TOP,
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    engine: EngineName = "auto",
    precision: Precision | None = None,
    batch_size: int = BATCH,
    threads: int = 0,
    data: PictureConfig | None = None,
    fields: Mapping[str, Any] | None = None,
    say: Callable[[str], None] | None = None,
    told: job.Told = lambda done, total: None,
) -> Prediction | Predictions | Written:
    """What a model sees. One picture gives a Prediction, or raises; several give Predictions, errors included.

    With `out` the rows go to a .csv, .jsonl or .parquet file, and `resume` goes on after an interruption.
    """
    how = EngineConfig(name=engine, precision=precision, batch_size=batch_size, threads=threads)
    running = Running(model, fields or {}, how, data or PictureConfig(), say)
    check_top(top)
    if out is not None:
        names = file_names(pictures)
        return to_table(running, Path(out), names, lambda: list_inputs(names).items, top=top, resume=resume, told=told)
    if is_one(pictures):
        (row,), *_ = answered(running.open(batch=1), every(pictures), running.pictures, top)
        check_readable(row)
        return row
    sources = every(pictures)
    return Predictions(row for rows in answered(running.open(), sources, running.pictures, top) for row in rows)


def answered(
    engine: Engine, sources: Iterable[Source], pictures: PictureConfig, top: int = TOP
) -> Iterator[list[Prediction]]:
    """A row for every source, in order, a batch at a time."""
    labels = engine.card.labels
    if not labels:
        raise UsageError("The model has no classes.", "A classifier.", "Use vitrail embed for its features.")
    for batch, outputs in stream(engine, sources, pictures):
        yield predictions(batch, outputs.logits, labels, top)


def to_table(
    running: Running,
    out: Path,
    names: Sequence[str],
    listed: Callable[[], Sequence[Item]],
    *,
    top: int = TOP,
    resume: bool = False,
    told: job.Told = lambda done, total: None,
) -> Written:
    """One row per file in a table. `names` stand for the files that `listed` gives; `resume` does not list again."""
    table.check_suffix(out)
    job.refuse_inside(out, names)
    if job.is_finished(out, resume):
        return summary(out, table.errors_in(out))
    asked = {"verb": "predict", "top": top, "names": list(names), **running.identity()}

    def lines(items: Iterable[Item]) -> Iterator[job.Rows]:
        for rows in answered(running.open(), items, running.pictures, top):
            yield [as_line(row, top) for row in rows], b""

    with job.opened(out, asked, listed, resume=resume) as opened:
        job.work(opened, lines, told=told)
        table.write(out, opened.lines(), columns(top), lambda pyarrow: schema(pyarrow, top))
        opened.discard()
    return summary(out, table.errors_in(out))


def check_top(top: int) -> None:
    """Refuse to list no class."""
    if top < 1:
        raise UsageError(f"top is {top}.", "How many classes to list: 1 or more.", "")
