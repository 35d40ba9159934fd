"""How good the weights of this moment are on pictures that are not trained on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from vitrail.train.distributed import World
from vitrail.train.feed import MicroBatch
from vitrail.train.job import Job
from vitrail.train.loss import Loss, correct, label_rows
from vitrail.train.passes import LogitsOf
from vitrail.train.state import TrainState
from vitrail.train.step import nothing_learnt

Bad = list[tuple[str, str]]  # picture, why it cannot be read
Told = Callable[[int, int], None]  # so many of so many pictures are done


@dataclass
class Scores:
    """Sums over validation pictures, and their means."""

    loss_sum: float = 0.0
    right1: int = 0
    right5: int = 0
    pictures: int = 0

    @property
    def means(self) -> dict[str, float]:
        """The columns of results.csv."""
        count = max(self.pictures, 1)
        named = {"val_loss": self.loss_sum, "val_top1": self.right1, "val_top5": self.right5}
        return {name: round(total / count, 6) for name, total in named.items()}


@torch.no_grad()
def validate(job: Job, state: TrainState, told: Told = lambda done, total: None) -> tuple[Scores, Bad]:
    """Every validation picture once, and those that could not be read."""
    scores, bad = Scores(), []
    state.model.eval()
    with state.passes.judged(state.evaluated) as logits_of:
        for batch in job.validation_batches(state.model):
            job.stop_if_asked()
            bad += [(str(job.data.val[key.index].item), error.row) for key, error in batch.bad]
            if len(batch):
                count(job, scores, batch, logits_of)
            elif job.world.launched:
                nothing_learnt(batch, logits_of)
            told(min((scores.pictures + len(bad)) * job.world.size, len(job.data.val)), len(job.data.val))
    return over_all(job.world, scores, bad)


def count(job: Job, scores: Scores, batch: MicroBatch, logits_of: LogitsOf) -> None:
    """Add a portion of pictures."""
    logits = logits_of(batch.images)
    targets = label_rows(job.data.rows, batch.labels).to(logits.device)
    scores.loss_sum += Loss(job.loss.kind)(logits, targets).item()
    scores.right1 += int(correct(logits, targets, 1).sum())
    scores.right5 += int(correct(logits, targets, 5).sum())
    scores.pictures += len(batch)


def over_all(world: World, scores: Scores, bad: Bad) -> tuple[Scores, Bad]:
    """What all processes found together: every picture was looked at by exactly one."""
    loss_sum, *counts = world.total(scores.loss_sum, scores.right1, scores.right5, scores.pictures, len(bad))
    right1, right5, pictures, number = map(int, counts)
    several = world.everyones(bad) if number else []
    return Scores(loss_sum, right1, right5, pictures), [one for found in several for one in found]
