"""vitrail.embed: pictures in, features out; for one, for a list, or for any number of files.

vitrail.embed(model, "cat.jpg")                                  # an array
vitrail.embed(model, "photos", neighbours=3)                     # Embeddings: rows and an array, duplicates found
vitrail.embed(model, "photos", out="photos.npz", neighbours=3)   # the same in a file, resumable after any kill
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec
import numpy as np

from vitrail.bulk import job, table
from vitrail.bulk.rows import check_readable, facts
from vitrail.bulk.running import Running
from vitrail.bulk.settings import BATCH, EngineConfig, PictureConfig
from vitrail.bulk.sources import Pictures, every, file_names, is_one
from vitrail.bulk.stream import stream
from vitrail.bulk.written import Written, summary
from vitrail.embed.embedding import Embeddings, Seen, embedded
from vitrail.embed.looks import look_of
from vitrail.embed.save import SUFFIXES, errors_in, refuse_taken, save
from vitrail.embed.stored import Stored
from vitrail.engines.base import Engine, EngineName, Numbers, Outputs, Precision
from vitrail.engines.for_model import ModelLike
from vitrail.errors import UsageError, did_you_mean
from vitrail.images.decode import Source
from vitrail.images.listing import Item, list_inputs
from vitrail.images.loader import Batch

Feature = Literal["token", "mean", "grid"]  # the class token, the patches' mean, or every patch, after the last norm


def embed(
    model: ModelLike,
    pictures: Pictures,
    *,
    feature: Feature = "token",
    neighbours: int = 0,
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
) -> Numbers | Embeddings | Written:
    """A model's features. One picture gives an array, or raises; several give Embeddings, errors included.

    `neighbours` are the nearest others of each picture by cosine, exactly. With `out` everything goes to a .npy (with a
    .csv beside it), .npz or .parquet file, and `resume` goes on after an interruption.
    """
    how = EngineConfig(name=engine, precision=precision, batch_size=batch_size, threads=threads)
    running = Running(model, fields or {}, how, data or PictureConfig(), say)
    check(feature, neighbours)
    if out is not None:
        names = file_names(pictures)
        listed: Callable[[], Sequence[Item]] = lambda: list_inputs(names).items  # noqa: E731
        return to_file(running, Path(out), names, listed, feature, neighbours, resume=resume, told=told)
    if is_one(pictures):
        ((row,), (value,)), *_ = featured(running.open(feature, batch=1), every(pictures), running.pictures)
        check_readable(row)
        return np.asarray(value)
    return in_memory(running, every(pictures), feature, neighbours, told=told)


def featured(
    engine: Engine, sources: Iterable[Source], pictures: PictureConfig
) -> Iterator[tuple[list[Seen], Numbers]]:
    """A row and its features for every source, in order, a batch at a time; NaN where one cannot be read."""
    for batch, outputs in stream(engine, sources, pictures):
        yield seen(batch), spread(batch, outputs, engine)


def seen(batch: Batch) -> list[Seen]:
    """What is kept of every file of a batch beside its features."""
    pixels = iter(batch.pixels)
    return [Seen(**facts(file), look=None if file.error else look_of(next(pixels))) for file in batch.files]


def spread(batch: Batch, outputs: Outputs, engine: Engine) -> Numbers:
    """The features of the good files in the places of all files."""
    values = np.full((len(batch.files), *shape_of(engine)), np.nan, np.float32)
    found = getattr(outputs, engine.job.outputs[0])
    if found is not None:
        values[[file.error is None for file in batch.files]] = found
    return values


def shape_of(engine: Engine) -> tuple[int, ...]:
    """The shape of one picture's features."""
    config = engine.card.config
    dim = config.hidden_size
    return (*config.grid_for(engine.job.size), dim) if engine.job.outputs[0] == "grid" else (dim,)


def in_memory(
    running: Running, sources: Sequence[Source], feature: Feature, neighbours: int, *, told: job.Told
) -> Embeddings:
    """All rows and all features."""
    engine = running.open(feature)
    rows: list[Seen] = []
    values = np.empty((len(sources), *shape_of(engine)), np.float32)
    told(0, len(sources))
    for some, found in featured(engine, sources, running.pictures):
        values[len(rows) : len(rows) + len(some)] = found
        rows += some
        told(len(rows), len(sources))
    return Embeddings(embedded(rows, values, neighbours), values)


def to_file(
    running: Running,
    out: Path,
    names: Sequence[str],
    listed: Callable[[], Sequence[Item]],
    feature: Feature,
    neighbours: int,
    *,
    resume: bool = False,
    told: job.Told = lambda done, total: None,
) -> Written:
    """One row per file in a result. `names` stand for the files that `listed` gives; `resume` does not list again."""
    table.check_suffix(out, SUFFIXES)
    job.refuse_inside(out, names)
    if job.is_finished(out, resume):
        return summary(out, errors_in(out))
    refuse_taken(out)
    asked = {"verb": "embed", "feature": feature, "names": list(names), **running.identity()}
    with job.opened(out, asked, listed, resume=resume) as opened:
        engine = running.open(feature)
        shape = shape_of(engine)
        size = 4 * int(np.prod(shape))  # bytes of one row

        def rows(items: Iterable[Item]) -> Iterator[job.Rows]:
            for some, values in featured(engine, items, running.pictures):
                yield [msgspec.json.encode(row) + b"\n" for row in some], values.tobytes()

        job.work(opened, rows, row_bytes=size, told=told)
        values = Stored(opened.parts(size), shape)
        save(out, embedded(list(map(as_seen, opened.lines(size))), values, neighbours), values, bool(neighbours))
        opened.discard()
    return summary(out, errors_in(out))


def as_seen(line: bytes) -> Seen:
    """A row as it was kept."""
    return msgspec.json.decode(line, type=Seen)


def check(feature: str, neighbours: int) -> None:
    """Refuse what no picture has."""
    if feature not in get_args(Feature):
        raise UsageError(
            f"feature is {feature!r}.", did_you_mean(feature, get_args(Feature)), "token, mean or grid (every patch)."
        )
    if neighbours < 0:
        raise UsageError(f"neighbours is {neighbours}.", "How many others to list per picture: 0 or more.")
