"""Which learning rate? A range test (1506.01186): the rate grows a little with every step, and the loss tells.

The suggestion is where the smoothed loss falls fastest; past its lowest point a rate is too large.
"""

from __future__ import annotations

import copy
import csv
import io
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import vitrail.config
from vitrail.checkpoint.atomic import replacing
from vitrail.errors import DataError
from vitrail.runs.directory import Run
from vitrail.runs.signals import Signals
from vitrail.settings import Settings
from vitrail.train.config import TrainConfig
from vitrail.train.distributed import ALONE
from vitrail.train.guard import NonFinite
from vitrail.train.start import Plan, begin
from vitrail.train.step import take_step

STEPS = 100
LOWEST, HIGHEST = 1e-6, 1.0
SMOOTHING = 0.9  # of the moving average
BURST = 4.0  # times the lowest loss: from there on it only gets worse
ENDS = 5  # steps at either end that are not suggested


@dataclass(frozen=True)
class RateFound:
    """Every rate that was tried, the smoothed loss there, and the rate to begin with."""

    rates: tuple[float, ...]
    losses: tuple[float, ...]
    suggestion: float


def find_rate(plan: Plan, steps: int = STEPS, told: Callable[[int, int], None] = lambda done, total: None) -> RateFound:
    """A hundred steps or so on a copy of the model, each with a larger rate than the one before."""
    job, state = begin(replace(plan, settings=steady(plan, steps), model=copy.deepcopy(plan.model), world=ALONE),
                       Run(Path(), writes=False), Signals())  # fmt: skip
    batches = job.training_batches(state.model, 0)
    rates: list[float] = []
    losses: list[float] = []
    average = 0.0
    for step in range(steps):
        rate = LOWEST * (HIGHEST / LOWEST) ** (step / (steps - 1))
        state.progress.rate = rate / job.config.lr
        try:
            taken = take_step(job, state, batches)
        except NonFinite:
            break
        if not taken.pictures:
            continue
        average = SMOOTHING * average + (1 - SMOOTHING) * taken.loss_sum / taken.pictures
        rates.append(rate)
        losses.append(average / (1 - SMOOTHING ** len(rates)))
        told(step + 1, steps)
        if losses[-1] > BURST * min(losses):
            break
    return RateFound(tuple(rates), tuple(losses), suggested(rates, losses))


def steady(plan: Plan, steps: int) -> Settings:
    """The plan's settings with a rate that only the test changes, and enough epochs for it."""
    train = plan.record("train", TrainConfig)
    epochs = math.ceil(steps * train.batch_size / len(plan.data.train)) + 1
    train = vitrail.config.replace(train, epochs=epochs, warmup=0.0, schedule="constant", ema=0.0)
    return Settings({**plan.settings.records, "train": train}, plan.settings.origins)


def suggested(rates: list[float], losses: list[float]) -> float:
    """Where the loss falls fastest per factor of the rate, before its lowest point."""
    lowest = int(np.argmin(losses)) if losses else 0
    if lowest < 2 * ENDS:
        raise DataError(
            "The loss did not fall at any rate.",
            f"A fall somewhere from {LOWEST:g} to {HIGHEST:g}.",
            "Look at the labels (vitrail data check), or at a larger train.batch_size.",
        )
    slopes = np.gradient(np.asarray(losses[: lowest + 1]), np.log(rates[: lowest + 1]))
    best = ENDS + int(np.argmin(slopes[ENDS:]))
    return float(f"{rates[best]:.1e}")


def save(found: RateFound, folder: Path) -> list[Path]:
    """rates.csv, and the curve as SVG and PNG."""
    import matplotlib.figure

    folder.mkdir(parents=True, exist_ok=True)
    text = io.StringIO(newline="")
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["lr", "smoothed_loss"])
    table.writerows(zip(found.rates, found.losses, strict=True))
    with replacing(folder / "rates.csv") as file:
        file.write(text.getvalue().encode())
    figure = matplotlib.figure.Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.add_subplot()
    axes.semilogx(found.rates, found.losses, color="#3b5b92")
    axes.axvline(found.suggestion, color="#b4552d", linestyle="--", label=f"suggested: {found.suggestion:g}")
    axes.set(xlabel="learning rate", ylabel="smoothed training loss")
    axes.legend(frameon=False)
    for name in ("rates.svg", "rates.png"):
        with replacing(folder / name) as file:
            figure.savefig(file, format=name.rpartition(".")[2], dpi=150)
    return [folder / name for name in ("rates.csv", "rates.svg", "rates.png")]
