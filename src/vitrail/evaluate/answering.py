"""Labelled pictures through an engine: every file one row, every readable one a row of scores, and what it cost."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vitrail.bulk.rows import item_name
from vitrail.bulk.settings import PictureConfig
from vitrail.bulk.stream import stream
from vitrail.config import Frozen
from vitrail.engines.base import Engine, Numbers, Outputs, Pictures
from vitrail.evaluate.metrics import Answered
from vitrail.evaluate.task import Task
from vitrail.images.folder import Sample
from vitrail.images.loader import File

IN_MEMORY = 512 * 2**20  # bytes of scores; more are kept in a file without a name
Told = Callable[[int, int], None]  # so many of so many files are done


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
        return item_name(self.sample.item)


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


class Timed:
    """An engine that knows how long it has worked."""

    def __init__(self, engine: Engine) -> None:
        self.name, self.card, self.job, self.engine = engine.name, engine.card, engine.job, engine
        self.seconds = 0.0

    def run(self, pictures: Pictures) -> Outputs:
        """What the engine says."""
        began = time.perf_counter()
        outputs = self.engine.run(pictures)
        self.seconds += time.perf_counter() - began
        return outputs


def answer(
    engine: Engine, task: Task, pictures: PictureConfig, told: Told | None = None
) -> tuple[list[Row], Answered, Cost]:
    """Every picture of a task answered, in order."""
    samples, labels, timed = task.samples, tuple(engine.card.labels), Timed(engine)
    scores, rows, good = table(len(samples), len(labels)), list[Row](), 0
    began = time.perf_counter()
    for batch, outputs in stream(timed, [sample.item for sample in samples], pictures):
        if outputs.logits is not None:
            logits = outputs.logits
            scores[good : good + len(logits)] = logits if task.several else log_probabilities(logits)
        for file in batch.files:
            rows.append(row_of(samples[file.index], file, None if file.error else good))
            good += file.error is None
        if told:
            told(len(rows), len(samples))
    seconds = time.perf_counter() - began
    truth = task.targets[[row.sample.label for row in rows if row.place is not None]]
    return rows, Answered(scores[:good], truth, labels, task.several), cost_of(timed, good, seconds)


def row_of(sample: Sample, file: File, place: int | None) -> Row:
    """What the loader says of a file, with its label."""
    return Row(sample, file.width, file.height, file.error.row if file.error else "", place)


def log_probabilities(logits: Numbers) -> NDArray[np.float32]:
    """The logarithm of the softmax: it tells apart what would both be rounded to certainty."""
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=1, keepdims=True)
    wide -= np.log(np.exp(wide).sum(axis=1, keepdims=True))
    return wide.astype(np.float32)


def table(rows: int, cols: int) -> NDArray[np.float32]:
    """Room for every score: in memory, or behind it on the disk."""
    if rows * cols * 4 <= IN_MEMORY:
        return np.empty((rows, cols), np.float32)
    with tempfile.TemporaryFile() as file:  # the mapping keeps it alive
        return np.memmap(file, np.float32, "w+", shape=(rows, cols))


def cost_of(engine: Timed, good: int, seconds: float) -> Cost:
    """What it took, per picture."""
    return Cost(
        engine=engine.name,
        precision=engine.job.precision,
        batch=engine.job.batch,
        threads=engine.job.threads,
        seconds=round(seconds, 3),
        pictures_per_second=round(good / max(seconds, 1e-9), 2),
        engine_pictures_per_second=round(good / max(engine.seconds, 1e-9), 2),
        peak_memory_mb=round(peak_memory() / 2**20, 1),
    )


def peak_memory() -> float:
    """The most bytes this process has had in memory; 0 where the system does not say."""
    status = Path("/proc/self/status")  # Linux; its ru_maxrss begins with that of the process which started this one
    lines = status.read_text().splitlines() if status.exists() else []
    if most := next((line.split()[1] for line in lines if line.startswith("VmHWM:")), None):
        return int(most) * 1024
    try:
        import resource
    except ImportError:  # Windows
        return 0.0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
