"""How long an epoch takes here, measured on a few steps, and so how many fit into a time."""

from __future__ import annotations

import copy
import re
import time
from dataclasses import dataclass, replace
from pathlib import Path

import vitrail.config
from vitrail.errors import UsageError
from vitrail.runs.directory import Run
from vitrail.runs.signals import Signals
from vitrail.settings import Settings
from vitrail.train.config import TrainConfig
from vitrail.train.distributed import ALONE
from vitrail.train.loop import Clock, clocked
from vitrail.train.screen import duration, verdict
from vitrail.train.start import Plan, begin
from vitrail.train.step import take_step
from vitrail.train.validate import validate

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
MEASURE = 4.0  # seconds to measure for
RESERVE = 0.93  # of the budget: the rest is for commits and the report
MOST = {"trained": 150, "fresh": 1000}  # epochs, however long the budget


@dataclass(frozen=True)
class Pace:
    """What one picture costs."""

    training: float  # seconds
    evaluating: float
    waiting: float  # share of the training time

    def epoch(self, plan: Plan) -> float:
        """Seconds of an epoch and its evaluation, shared by all processes."""
        return (self.training * len(plan.data.train) + self.evaluating * len(plan.data.val)) / plan.world.size


def seconds_of(text: str) -> float:
    """20m, 1.5h, 90s, 1h30m."""
    parts = re.findall(r"(\d+(?:\.\d+)?)([smhd])", text)
    if not parts or "".join(number + unit for number, unit in parts) != text or not sum(float(n) for n, _ in parts):
        raise UsageError(f"--time-budget is {text!r}.", "A time such as 90s, 20m, 1.5h or 1h30m.", "")
    return sum(float(number) * SECONDS[unit] for number, unit in parts)


def measured(plan: Plan) -> Pace:
    """A few real steps and a little of the evaluation, on a copy of the model that is then thrown away."""
    few = plan.data.val[: 2 * plan.record("train", TrainConfig).micro_batch]
    trial = replace(plan, model=copy.deepcopy(plan.model), data=replace(plan.data, val=few), world=ALONE)
    job, state = begin(trial, Run(Path()), Signals())
    clock = Clock()
    batches = clocked(job.training_batches(state.model, 0), clock)
    take_step(job, state, batches)  # the first one also fills caches and starts threads
    clock.waiting, pictures, started = 0.0, 0, time.monotonic()
    while time.monotonic() - started < MEASURE and state.progress.step < job.steps:
        pictures += take_step(job, state, batches).pictures
    spent = time.monotonic() - started
    del batches  # ends the threads that read ahead
    started = time.monotonic()
    validate(job, state)
    evaluating = (time.monotonic() - started) / max(len(few), 1)
    return Pace(spent / max(pictures, 1), evaluating, min(clock.waiting / max(spent, 1e-9), 1.0))


def epochs_within(plan: Plan, budget: str) -> tuple[Settings, tuple[str, ...]]:
    """The plan's settings with as many epochs as fit, and its notes with how that was found."""
    seconds, started = seconds_of(budget), time.monotonic()
    train = plan.record("train", TrainConfig)
    if train.mode == "probe":
        return plan.settings, (*plan.notes, "time: a probe reads every picture once; the budget is not the limit")
    pace = measured(plan)
    each = pace.epoch(plan)
    left = seconds * RESERVE - (time.monotonic() - started)
    epochs = min(max(int(left / each), 1), MOST[plan.start])
    said = (
        f"time: {duration(each)} an epoch here ({1 / pace.training:.0f} images/s, {verdict(pace.waiting)}), "
        f"so {epochs} epochs, about {duration(each * epochs)} of {duration(seconds)}"
    )
    if each > left:
        said += "; not even one fits: use a smaller model or picture, or --preset quick"
    return changed(plan.settings, f"--time-budget {budget}", epochs), (*plan.notes, said)


def changed(settings: Settings, origin: str, epochs: int) -> Settings:
    """The same settings with another number of epochs."""
    train = vitrail.config.replace(settings.records["train"], epochs=epochs)
    return Settings({**settings.records, "train": train}, {**settings.origins, "train.epochs": origin})
