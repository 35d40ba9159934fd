"""Logits and targets to a loss. Targets are a row per picture: a share per class, so that mixed labels need no more.

The sum over pictures is returned, not the mean: a step may come in portions, and each picture counts once.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.errors import DataError
from vitrail.train.config import TrainConfig


@dataclass(frozen=True)
class Loss:
    """What a run minimises."""

    kind: str  # cross_entropy | bce
    smoothing: float = 0.0
    weights: Tensor | None = None  # per class

    def __call__(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The sum over the pictures."""
        logits, targets = logits.float(), self.smoothed(targets)
        weights = 1.0 if self.weights is None else self.weights.to(logits.device)
        if self.kind == "bce":  # the mean over classes, as timm and torch have it
            return F.binary_cross_entropy_with_logits(logits, targets, reduction="none").mul(weights).mean(1).sum()
        return -(logits.log_softmax(1) * targets * weights).sum()

    def smoothed(self, targets: Tensor) -> Tensor:
        """Some of the certainty shared out: among all classes, or in the yes-or-no form between yes and no."""
        classes = 2 if self.kind == "bce" else targets.shape[1]
        return targets * (1 - self.smoothing) + self.smoothing / classes if self.smoothing else targets


def loss_for(config: TrainConfig, counts: Tensor) -> Loss:
    """The loss of a run on data with so many training pictures per class."""
    weights = balanced(counts) if config.class_weights == "balanced" else None
    return Loss(config.loss, config.label_smoothing, weights)


def balanced(counts: Tensor) -> Tensor:
    """Weights that give every class the same say and the average picture the weight 1."""
    if (counts == 0).any():
        raise DataError("A class has no training pictures, so it cannot be weighted.", "At least one.", "")
    return counts.sum() / (len(counts) * counts)


def correct(logits: Tensor, targets: Tensor, top: int) -> Tensor:
    """For each picture, whether one of the `top` likeliest classes is a right one."""
    best = logits.topk(min(top, logits.shape[1]), dim=1).indices
    return targets.gather(1, best).amax(1) > 0.5


def label_rows(rows: Tensor, labels: Tensor) -> Tensor:
    """The targets of pictures with these label numbers."""
    return torch.index_select(rows, 0, labels)
