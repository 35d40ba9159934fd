"""One step: portions of pictures to gradients, gradients to new weights.

What a step does depends on the state and on the step's number, so doing it again gives the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from vitrail.images.dice import Dice
from vitrail.model.probe import SILENT, Probe
from vitrail.train import guard
from vitrail.train.adapters import effective
from vitrail.train.feed import MicroBatch
from vitrail.train.guard import NonFinite
from vitrail.train.job import Job
from vitrail.train.loss import label_rows
from vitrail.train.mix import mixed, mixing
from vitrail.train.optim import gradient_norm, learning_rate, scale_gradients, set_learning_rate, update_average
from vitrail.train.state import TrainState

Batches = Iterator[tuple[int, bool, MicroBatch]]


@dataclass
class Taken:
    """What came of a step."""

    loss_sum: float = 0.0
    pictures: int = 0
    rate: float = 0.0
    gradient: float = 0.0
    bad: list[tuple[str, str]] = field(default_factory=list)


def take_step(job: Job, state: TrainState, batches: Batches) -> Taken:
    """Train on the pictures of one step; nothing of the state changes before all of them have been seen."""
    step, taken = state.progress.step, Taken()
    state.optimizer.zero_grad(set_to_none=True)
    state.model.train()
    for portion, (number, last, batch) in enumerate(batches):
        assert number == step, (number, step)
        job.signals.check()
        taken.bad += [(str(job.data.train[key.index].item), error.row) for key, error in batch.bad]
        if len(batch):
            accumulate(job, state, batch, portion, taken)
        if last:
            break
    if taken.pictures:
        descend(job, state, taken)
    state.progress.step += 1
    return taken


def accumulate(job: Job, state: TrainState, batch: MicroBatch, portion: int, taken: Taken) -> None:
    """Add a portion's gradients to those of the step."""
    loss = portion_loss(job, state, batch, portion)
    value = loss.item()
    if not math.isfinite(value):
        raise NonFinite("The loss", find_culprit(job, state), state.progress.step)
    scaled = loss / job.config.batch_size
    (state.scaler.scale(scaled) if state.scaler else scaled).backward()
    taken.loss_sum += value
    taken.pictures += len(batch)


def portion_loss(job: Job, state: TrainState, batch: MicroBatch, portion: int, probe: Probe = SILENT) -> Tensor:
    """The sum of the losses of a portion's pictures. Dropout is drawn from (seed, step, portion)."""
    config, step = job.config, state.progress.step
    how = mixing(config, step, (batch.images.shape[2], batch.images.shape[3]))
    images, targets = mixed(batch.images, label_rows(job.data.rows, batch.labels), how)
    torch.manual_seed(Dice((config.seed, step, portion, job.world.rank)).bits("dropout") >> 1)
    weights = effective(state.model, state.learning, config)
    logits = job.arithmetic.logits(state.model, weights, images, probe)
    return job.loss(logits, targets.to(logits.device))


def descend(job: Job, state: TrainState, taken: Taken) -> None:
    """From gradients to new weights: mean over the pictures there really were, clip, step, average."""
    config, step = job.config, state.progress.step
    if state.scaler:
        state.scaler.unscale_(state.optimizer)
    portion = config.batch_size / taken.pictures  # 1 but for the last step of an epoch, and where pictures are bad
    taken.gradient = gradient_norm(state.learning.values()).item() * portion
    if not math.isfinite(taken.gradient) and not state.scaler:  # in fp16 the scaler expects that, and steps over it
        raise NonFinite("The gradient", find_culprit(job, state), step)
    clip = min(1.0, config.clip / max(taken.gradient, 1e-12)) if config.clip else 1.0
    scale_gradients(state.learning.values(), portion * clip)
    taken.rate = learning_rate(config, step, job.steps) * state.progress.rate
    set_learning_rate(state.optimizer, taken.rate)
    if state.scaler:
        state.scaler.step(state.optimizer)
        state.scaler.update()
    else:
        state.optimizer.step()
    if state.average is not None:
        update_average(state.average, state.learning, config.ema, step)


def find_culprit(job: Job, state: TrainState) -> str:
    """The module a number that is not finite comes from; the step's pictures are read once more to find out."""
    step, where = state.progress.step, ""
    for portion, (number, _, batch) in enumerate(job.training_batches(state.model, step)):
        if number != step:
            break
        batch.images.requires_grad_()  # so that gradients are seen on their way through every module
        again = partial(portion_loss, job, state, batch, portion)
        where = guard.culprit(state.model, effective(state.model, state.learning, job.config), again)
        if where != guard.NOT_AGAIN:
            break
    return where
