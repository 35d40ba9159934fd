"""How good the weights of this moment are on pictures that are not trained on."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from vitrail.train.adapters import effective
from vitrail.train.job import Job
from vitrail.train.loss import Loss, correct, label_rows
from vitrail.train.state import TrainState


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
def validate(job: Job, state: TrainState) -> tuple[Scores, list[tuple[str, str]]]:
    """Every validation picture once, and those that could not be read."""
    scores, bad, loss = Scores(), [], Loss(job.loss.kind)
    state.model.eval()
    weights = effective(state.model, state.evaluated, job.config)
    for batch in job.validation_batches(state.model):
        job.signals.check()
        bad += [(str(job.data.val[key.index].item), error.row) for key, error in batch.bad]
        if not len(batch):
            continue
        logits = job.arithmetic.logits(state.model, weights, batch.images)
        targets = label_rows(job.data.rows, batch.labels).to(logits.device)
        scores.loss_sum += loss(logits, targets).item()
        scores.right1 += int(correct(logits, targets, 1).sum())
        scores.right5 += int(correct(logits, targets, 5).sum())
        scores.pictures += len(batch)
    return scores, bad
