"""A short, measured trial: which engines can run this model here, how near their answers are, how quick they are."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module

import msgspec
import torch

from vitrail.engines.base import HOMES, ONLY_EXACT, Asked, Card, Engine, Job, Pictures, Precision, card_of
from vitrail.engines.cache import has_bfloat16
from vitrail.engines.fold import fold
from vitrail.engines.folded import Folded
from vitrail.engines.samples import sample_pictures
from vitrail.engines.trust import Agreement, Reference, agreement, reference
from vitrail.errors import EnvironmentProblem
from vitrail.model.vit import VisionTransformer

SAMPLES = 200  # half a percent of them is one picture
SECONDS, TURNS, RUNS = 1.0, 2, 2  # how long an engine is timed, how many turns at least, runs in a turn
Say = Callable[[str], None]


@dataclass(frozen=True)
class Tried:
    """An engine that ran: how near to the model, and how fast."""

    engine: Engine
    agreement: Agreement
    rate: float = 0.0  # pictures per second

    def __str__(self) -> str:
        return f"{called(self.engine)}: {self.rate:.1f} pictures/s, {self.agreement}."


def trial(model: VisionTransformer, asked: Asked, pictures: Pictures | None, say: Say) -> Engine:
    """The quickest engine whose answers are as near to the model's as its precision promises."""
    job = job_for(model, asked)
    if pictures is None:
        pictures = sample_pictures(job.size, model.config.num_channels, job.depth, SAMPLES)
    folded, expected = fold(model, job.size, job.outputs, job.depth), reference(model, job, pictures)
    for precision in precisions(asked):
        best: Tried | None = None
        for name in candidates(asked, precision):
            one = msgspec.structs.replace(job, precision=precision)
            tried = attempt(name, folded, card_of(model), one, expected, asked, say)
            best = quicker(tried, best, expected.pictures, say) if tried else best
        if best:
            say(f"Engine: {called(best.engine)}, {best.rate:.1f} pictures/s.")
            return best.engine
    raise EnvironmentProblem(
        "No engine that is installed can run this model as asked.",
        "One whose answers are those of the model in float32.",
        "Use --engine torch --precision exact; the lines above say what was tried.",
    )


def attempt(
    name: str, folded: Folded, card: Card, job: Job, expected: Reference, asked: Asked, say: Say
) -> Tried | None:
    """One engine, built and compared; None, and a line that says why, where it is not to be used."""
    try:
        engine = import_module(HOMES[name]).build(folded, card, job)
        near = agreement(engine, expected)
    except EnvironmentProblem as problem:
        if asked.engine != "auto":
            raise
        say(f"{name}: not here. {problem.found}")
        return None
    except Exception as error:  # runtimes raise what they like over a graph they cannot run
        say(f"{name}: cannot run this model ({str(error).strip().splitlines()[0]}).")
        return None
    # Who asks for a precision by name gets it, and reads how near it is.
    if not (near.enough(job.precision) or (asked.precision == "balanced" and near.finite)):
        say(f"{name}, {job.precision}: not used, {near}.")
        return None
    return Tried(engine, near)


def quicker(tried: Tried, best: Tried | None, pictures: Pictures, say: Say) -> Tried:
    """An engine beside the best so far: both timed now, since another program may have slowed the first time."""
    rate, *rival = rates([tried.engine, *([best.engine] if best else [])], pictures)
    tried = replace(tried, rate=rate)
    say(str(tried))
    return replace(best, rate=rival[0]) if best and rival[0] > rate else tried


def rates(engines: Sequence[Engine], pictures: Pictures) -> list[float]:
    """Pictures per second, in batches as the job expects them: engines take turns, and the best of a few counts."""
    times: list[list[float]] = [[] for _ in engines]
    batch = pictures[: engines[0].job.batch]
    began = time.perf_counter()
    while len(times[0]) < TURNS * RUNS or time.perf_counter() - began < SECONDS:
        for engine, found in zip(engines, times, strict=True):
            for _ in range(RUNS):  # the first may meet threads of the engine before that still spin
                start = time.perf_counter()
                engine.run(batch)
                found.append(time.perf_counter() - start)
    return [len(batch) / min(found) for found in times]


def job_for(model: VisionTransformer, asked: Asked) -> Job:
    """The question with what the model knows filled in."""
    size = asked.size or model.preprocess.size
    model.config.grid_for(size)  # refuses what does not divide
    return Job(outputs=asked.outputs, size=size, depth=asked.depth, batch=asked.batch, threads=asked.threads)


def candidates(asked: Asked, precision: Precision) -> Sequence[str]:
    """The engines that may be able to."""
    if asked.engine != "auto":
        return (asked.engine,)
    return [name for name in HOMES if precision == "exact" or name not in ONLY_EXACT]


def precisions(asked: Asked) -> Sequence[Precision]:
    """What to try, in order."""
    if asked.precision:
        return (asked.precision,)
    if asked.engine in ONLY_EXACT:
        return ("exact",)
    half = has_bfloat16() or (torch.cuda.is_available() and torch.cuda.is_bf16_supported())
    return ("balanced", "exact") if half else ("exact",)


def called(engine: Engine) -> str:
    """An engine in words."""
    return f"{engine.name}, {engine.job.precision} ({'bfloat16' if engine.job.precision == 'balanced' else 'float32'})"
