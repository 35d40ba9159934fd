"""One step: portions of pictures to gradients, gradients to new weights.

What a step does depends on the state and on the step's number, so doing it again gives the same bits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from vitrail.images.dice import Dice
from vitrail.model.probe import Probe
from vitrail.train import guard
from vitrail.train.distributed import World
from vitrail.train.feed import MicroBatch
from vitrail.train.guard import NonFinite
from vitrail.train.job import Batches, Job, Place
from vitrail.train.loss import label_rows
from vitrail.train.mix import mixed, mixing
from vitrail.train.optim import gradient_norm, learning_rate, scale_gradients, set_learning_rate, update_average
from vitrail.train.passes import LogitsOf
from vitrail.train.state import TrainState


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
    for place, batch in batches:
        assert place.step == step, (place, step)
        job.stop_if_asked()
        taken.bad += [(str(job.data.train[key.index].item), error.row) for key, error in batch.bad]
        if len(batch) or job.world.launched:
            accumulate(job, state, batch, place, taken)
        if place.last:
            break
    taken = over_all(job.world, taken)
    if taken.pictures:
        descend(job, state, taken)
    state.progress.step += 1
    return taken


def accumulate(job: Job, state: TrainState, batch: MicroBatch, place: Place, taken: Taken) -> None:
    """Add a portion's gradients to those of the step."""
    with state.passes.portion(place.last):
        loss = portion_loss(job, batch, place, state.passes.learn)
        value = loss.item()
        if job.world.most(not math.isfinite(value)):
            raise NonFinite("The loss", find_culprit(job, state), state.progress.step)
        scaled = loss * (job.world.size / job.config.batch_size)  # of the sums of all processes the mean is taken
        (state.scaler.scale(scaled) if state.scaler else scaled).backward()
    taken.loss_sum += value
    taken.pictures += len(batch)


def portion_loss(job: Job, batch: MicroBatch, place: Place, logits_of: LogitsOf) -> Tensor:
    """The sum of the losses of a portion's pictures. Dropout is drawn from (seed, step, portion)."""
    if not len(batch):
        return nothing_learnt(batch, logits_of)
    how = mixing(job.config, place.step, (batch.images.shape[2], batch.images.shape[3]))
    images, targets = mixed(batch.images, label_rows(job.data.rows, batch.labels), how)
    torch.manual_seed(Dice((job.config.seed, place.step, place.portion)).bits("dropout") >> 1)
    logits = logits_of(images)
    return job.loss(logits, targets.to(logits.device))


def nothing_learnt(batch: MicroBatch, logits_of: LogitsOf) -> Tensor:
    """A way there and back that leaves no trace, for a process without pictures: the others wait for its part."""
    blank = batch.images.new_zeros(1, *batch.images.shape[1:])
    return logits_of(blank).sum() * 0.0


def over_all(world: World, taken: Taken) -> Taken:
    """What came of a step in all processes together."""
    loss_sum, pictures, bad = world.total(taken.loss_sum, taken.pictures, len(taken.bad))
    several = world.everyones(taken.bad) if bad else []
    return Taken(loss_sum, int(pictures), bad=[one for found in several for one in found])


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
    where = next((found for found in job.world.everyones(own_culprit(job, state)) if found != guard.NOT_AGAIN), "")
    return where or guard.NOT_AGAIN


def own_culprit(job: Job, state: TrainState) -> str:
    """The same, as far as this process's pictures tell."""
    model, weights, logits = state.passes.searched()
    for place, batch in job.training_batches(state.model, state.progress.step):
        if place.step != state.progress.step:
            break
        batch.images.requires_grad_()  # so that gradients are seen on their way through every module

        def loss(probe: Probe, place: Place = place, batch: MicroBatch = batch) -> Tensor:
            return portion_loss(job, batch, place, lambda images: logits(images, probe))

        where = guard.culprit(model, weights, loss)
        if where != guard.NOT_AGAIN:
            return where
    return guard.NOT_AGAIN
