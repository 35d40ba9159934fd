"""What is explained: one class per image; for a model without a classifier, each image's own feature direction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.errors import UsageError, did_you_mean
from vitrail.model.vit import VisionTransformer

Asked = int | str | Sequence[int | str] | None  # one class for all images, one per image, or None: the predicted one


@dataclass(frozen=True)
class Target:
    """Class numbers (batch), or unit vectors (batch x dim) where the model has no classes."""

    classes: Tensor | None
    directions: Tensor | None = None

    def score(self, outputs: Tensor) -> Tensor:
        """One number per image to take gradients of: the class's logit, or how far the features go its way."""
        if self.classes is not None:
            return outputs.gather(1, self.classes[:, None])[:, 0]
        assert self.directions is not None
        return (outputs * self.directions).sum(1)

    def confidence(self, outputs: Tensor) -> Tensor:
        """One number per image that reads like a probability: softmax, sigmoid (one class), or the cosine."""
        outputs = outputs.float() if outputs.element_size() < 4 else outputs
        if self.classes is None:
            assert self.directions is not None
            return F.cosine_similarity(outputs, self.directions.to(outputs), dim=1)
        if outputs.shape[1] == 1:
            return outputs[:, 0].sigmoid()
        return self.score(outputs.softmax(1))

    def each(self, images: Tensor) -> Target:
        """The targets of these images (positions in the batch, which may repeat)."""
        return Target(*(None if part is None else part[images] for part in (self.classes, self.directions)))


def target_of(model: VisionTransformer, outputs: Tensor, asked: Asked = None) -> Target:
    """The target asked for, or what the model itself says about each image."""
    outputs = outputs.detach()
    if not model.config.num_classes:
        if asked is not None:
            raise UsageError(
                f"Asked to explain class {asked!r}, but the model has no classifier.",
                "Without classes, what is explained is the direction of the image's own features.",
                "Leave the class out, or use a model with a classifier.",
            )
        return Target(None, F.normalize(outputs, dim=1))
    if asked is None:
        return Target(outputs.argmax(1))
    many = [asked] * len(outputs) if isinstance(asked, (int, str)) else list(asked)
    if len(many) != len(outputs):
        raise UsageError(f"{len(many)} classes for {len(outputs)} images.", "One for all, or one each.", "")
    return Target(torch.tensor([class_number(model, one) for one in many], device=outputs.device))


def asked_of(asked: Asked, start: int, count: int) -> Asked:
    """What was asked of some images out of many."""
    return asked if asked is None or isinstance(asked, (int, str)) else asked[start : start + count]


def class_number(model: VisionTransformer, asked: int | str) -> int:
    """A class by number or by label."""
    if isinstance(asked, str) and asked in model.labels:
        return model.labels.index(asked)
    if isinstance(asked, str) and not asked.isdigit():
        raise UsageError(f"The model has no class {asked!r}.", did_you_mean(asked, model.labels), "")
    if not 0 <= int(asked) < model.config.num_classes:
        raise UsageError(
            f"Asked to explain class {asked}.", f"The model has classes 0 to {model.config.num_classes - 1}.", ""
        )
    return int(asked)
