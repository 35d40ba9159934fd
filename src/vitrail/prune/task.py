"""What must not get worse: pictures, what the model should say about them, and how far it does.

With a classifier that is its loss and accuracy, against the labels or (without labels) against its own answers before
pruning. Without a classifier it is how far the features move, and with labels how often the nearest neighbour by
features has the same label.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.errors import DataError
from vitrail.model.vit import VisionTransformer


@dataclass(frozen=True)
class Task:
    """Normalised images with `labels` (class numbers) or, without a classifier, the `features` they had."""

    images: Tensor
    labels: Tensor | None
    features: Tensor | None
    measure: str  # what `quality` is
    batch_size: int = 8

    def batches(self) -> Iterator[tuple[Tensor, slice]]:
        """A few images at a time, and which they are."""
        for start in range(0, len(self.images), self.batch_size):
            rows = slice(start, start + self.batch_size)
            yield self.images[rows], rows

    def losses(self, outputs: Tensor, rows: slice) -> Tensor:
        """One number per image: cross-entropy, or one minus the cosine with the features before pruning."""
        if self.features is not None:
            return 1 - F.cosine_similarity(outputs.float(), self.features[rows], dim=1)
        assert self.labels is not None
        return F.cross_entropy(outputs.float(), self.labels[rows], reduction="none")

    def probes(self, outputs: Tensor, rows: slice, generator: torch.Generator) -> Tensor:
        """One number per image whose gradient tells what matters.

        For classes the loss. Features sit at the minimum of theirs, where its gradient is zero: a random direction
        instead, whose squared gradient is, on average, the features' squared movement.
        """
        if self.features is None:
            return self.losses(outputs, rows)
        directions = torch.randn(outputs.shape, generator=generator).to(outputs)
        lengths: Tensor = self.features[rows].norm(dim=1)
        return (outputs * directions).sum(1) / lengths

    def quality(self, outputs: Tensor) -> float:
        """0 to 1: the mean over images."""
        return float(self.qualities(outputs).mean())

    def qualities(self, outputs: Tensor) -> Tensor:
        """Per image: right, nearest neighbour with the same label, or the cosine with the features before pruning."""
        if self.features is None:
            assert self.labels is not None
            return (outputs.argmax(1) == self.labels).double()
        if self.labels is not None:
            return neighbour_agrees(outputs, self.labels)
        return F.cosine_similarity(outputs.float(), self.features, dim=1).double()

    def part(self, rows: slice) -> Task:
        """Some of the images."""
        labels, features = (None if one is None else one[rows] for one in (self.labels, self.features))
        return replace(self, images=self.images[rows], labels=labels, features=features)


def task_for(model: VisionTransformer, images: Tensor, labels: Tensor | None = None, batch_size: int = 8) -> Task:
    """The task a model has on these images."""
    if len(images) < 4 or (labels is not None and len(labels) != len(images)):
        raise DataError(
            f"{len(images)} images and {'no' if labels is None else len(labels)} labels to prune by.",
            "At least 4 images (100 make scores that hold), and a label for each or for none.",
            "",
        )
    bare = Task(images, labels, None, "", batch_size)
    outputs = answers(model, bare)
    if not model.config.num_classes:
        measure = "features stay (cosine)" if labels is None else "nearest neighbour has the same label"
        return replace(bare, features=outputs.float(), measure=measure)
    if labels is None:
        return replace(bare, labels=outputs.argmax(1), measure="same answer as before")
    if not bool(((labels >= 0) & (labels < model.config.num_classes)).all()):
        raise DataError(
            f"Labels go from {int(labels.min())} to {int(labels.max())}.",
            f"The model has classes 0 to {model.config.num_classes - 1}.",
            "",
        )
    return replace(bare, measure="top-1 accuracy")


def answers(model: VisionTransformer, task: Task) -> Tensor:
    """The model's outputs for every image of the task."""
    training = model.training
    model.eval()
    with torch.inference_mode():
        outputs = torch.cat([model(images) for images, _ in task.batches()])
    model.train(training)
    return outputs.clone()


def neighbour_agrees(features: Tensor, labels: Tensor) -> Tensor:
    """Whether each image's most similar other image has the same label: 1 or 0."""
    unit = F.normalize(features.float(), dim=1)
    similar = (unit @ unit.T).fill_diagonal_(-torch.inf)
    return (labels[similar.argmax(1)] == labels).double()
