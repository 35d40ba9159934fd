"""Labelled pictures through an engine: every file one row, every readable one a row of scores, and what it cost."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vitrail.config import Frozen
from vitrail.engines.base import Engine, Numbers
from vitrail.errors import CheckpointError
from vitrail.evaluate.metrics import Answered
from vitrail.evaluate.ranking import Flags
from vitrail.images.decode import DEFAULT, Decoding
from vitrail.images.folder import Sample
from vitrail.images.loader import File, batches
from vitrail.images.reading import shown

IN_MEMORY = 512 * 2**20  # bytes of scores; more are kept in a file without a name
Progress = Callable[[int, int], None]  # so many of so many files are done


@dataclass(frozen=True, slots=True)
class Row:
    """What became of one file."""

    sample: Sample
    width: int | None
    height: int | None
    error: str  # reason and finding; empty for a good file
    place: int | None  # among the scores; None for a bad file

    @property
    def path(self) -> str:
        """The file's name as every table can hold it."""
        return shown(str(self.sample.item))


class Cost(Frozen, frozen=True, kw_only=True):
    """What answering took on this machine."""

    engine: str
    precision: str
    batch: int
    threads: int
    seconds: float  # reading, resizing and answering, overlapped
    pictures_per_second: float
    engine_pictures_per_second: float  # without waiting for pictures
    peak_memory_mb: float  # of the whole process so far


def answer(
    engine: Engine,
    samples: Sequence[Sample],
    targets: Flags,
    *,
    several: bool = False,
    workers: int | None = None,
    decoding: Decoding = DEFAULT,
    progress: Progress | None = None,
) -> tuple[list[Row], Answered, Cost]:
    """Every sample answered. `targets` has a row of right classes (in the model's numbers) for each label number."""
    labels = tuple(engine.card.labels)
    scores = table(len(samples), len(labels))
    rows: list[Row] = []
    began, busy, good = time.perf_counter(), 0.0, 0
    found = batches(
        [sample.item for sample in samples],
        engine.card.preprocess,
        batch_size=engine.job.batch,
        workers=workers,
        depth=engine.job.depth,
        options=decoding,
    )
    for batch in found:
        started = time.perf_counter()
        if batch.good:
            logits = engine.run(batch.pixels).logits
            assert logits is not None
            check_finite(logits, batch.good)
            scores[good : good + len(logits)] = logits if several else log_probabilities(logits)
        busy += time.perf_counter() - started
        for file in batch.files:
            rows.append(row_of(samples[file.index], file, None if file.error else good))
            good += file.error is None
        if progress:
            progress(len(rows), len(samples))
    seconds = time.perf_counter() - began
    truth = targets[[row.sample.label for row in rows if row.place is not None]]
    return rows, Answered(scores[:good], truth, labels, several), cost_of(engine, good, seconds, busy)


def row_of(sample: Sample, file: File, place: int | None) -> Row:
    """What the loader says of a file, with its label."""
    return Row(sample, file.width, file.height, file.error.row if file.error else "", place)


def log_probabilities(logits: Numbers) -> NDArray[np.float32]:
    """The logarithm of the softmax: it tells apart what would both be rounded to certainty."""
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=1, keepdims=True)
    wide -= np.log(np.exp(wide).sum(axis=1, keepdims=True))
    return wide.astype(np.float32)


def check_finite(logits: Numbers, files: Sequence[File]) -> None:
    """Refuse answers that are no numbers: every measure would be quietly wrong."""
    bad = ~np.isfinite(logits).all(axis=1)
    if bad.any():
        raise CheckpointError(
            f"The model's answer for {shown(str(files[int(bad.argmax())].source))} is not finite.",
            "A number for every class.",
            "Try --precision exact; if that is no better, the weights are damaged: vitrail inspect.",
        )


def table(rows: int, cols: int) -> NDArray[np.float32]:
    """Room for every score: in memory, or behind it on the disk."""
    if rows * cols * 4 <= IN_MEMORY:
        return np.empty((rows, cols), np.float32)
    with tempfile.TemporaryFile() as file:  # the mapping keeps it alive
        return np.memmap(file, np.float32, "w+", shape=(rows, cols))


def cost_of(engine: Engine, good: int, seconds: float, busy: float) -> Cost:
    """What it took, per picture."""
    return Cost(
        engine=engine.name,
        precision=engine.job.precision,
        batch=engine.job.batch,
        threads=engine.job.threads,
        seconds=round(seconds, 3),
        pictures_per_second=round(good / max(seconds, 1e-9), 2),
        engine_pictures_per_second=round(good / max(busy, 1e-9), 2),
        peak_memory_mb=round(peak_memory() / 2**20, 1),
    )


def peak_memory() -> float:
    """The most bytes this process has had in memory; 0 where the system does not say."""
    try:
        import resource
    except ImportError:  # Windows
        return 0.0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
