"""How far a map tells the truth: cover the patches it names and see whether the model's answer follows.

Three measures, all areas under the target's confidence while patches go or come in the map's order:
deletion (most important first, to the mean colour: low is good), insertion (onto a blurred picture: high is good),
and ROAD (least important first minus most important first, with holes nobody can see: high is good). A random order
says what each number is worth for this picture.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from vitrail.explain.impute import imputed
from vitrail.explain.perturb import BATCH, blurred, confidences, to_cells, to_pixels
from vitrail.explain.record import evaluating, size_of
from vitrail.explain.target import Asked, Target, target_of
from vitrail.model.vit import VisionTransformer


@dataclass(frozen=True)
class Scores:
    """Areas under one picture's curves; every one a confidence between 0 and 1 (cosine, without a classifier)."""

    deletion: float
    insertion: float
    road: float

    @property
    def total(self) -> float:
        """What methods are ranked by: how much later confidence falls and sooner it rises than the other way round."""
        return (self.insertion - self.deletion + self.road) / 2


def faithfulness(
    model: VisionTransformer, images: Tensor, maps: Tensor, *, target: Asked = None, steps: int = 10, seed: int = 0
) -> list[Scores]:
    """One map per image (per patch or per pixel) to its scores; `steps` is how often each curve is looked at."""
    with evaluating(model):
        wanted = target_of(model, model(images), target)
    return [
        scored(model, image[None], one, wanted.each(torch.tensor([i])), steps, seed)
        for i, (image, one) in enumerate(zip(images, per_patch(model, images, maps), strict=True))
    ]


def per_patch(model: VisionTransformer, images: Tensor, maps: Tensor) -> Tensor:
    """Maps over patches as they are; maps over pixels summed over each patch."""
    over_pixels = maps.shape[1:] == images.shape[2:] != model.config.grid_for(size_of(images))
    return to_cells(maps, model.config) if over_pixels else maps


def random_maps(images: int, grid: tuple[int, int], seed: int = 0) -> Tensor:
    """The baseline: every patch a random importance."""
    return torch.rand((images, *grid), generator=torch.Generator().manual_seed(seed))


def scored(
    model: VisionTransformer, image: Tensor, importance: Tensor, target: Target, steps: int, seed: int
) -> Scores:
    """All three areas for one picture."""
    ranks = ranked(importance, seed)
    most_first = list(masks(model, image, ranks, steps))
    least_first = list(masks(model, image, ranks.numel() - 1 - ranks, steps))
    generator = torch.Generator().manual_seed(seed)

    def curve(pictures: Iterator[Tensor]) -> float:
        return area(confidences(model, in_batches(pictures), target))

    even, soft = torch.zeros_like(image), blurred(image)
    return Scores(
        deletion=curve(torch.where(mask, even, image) for mask in most_first),
        insertion=curve(torch.where(mask, image, soft) for mask in most_first),
        road=curve(imputed(image, mask, generator) for mask in least_first)
        - curve(imputed(image, mask, generator) for mask in most_first),
    )


def ranked(importance: Tensor, seed: int) -> Tensor:
    """Place of each patch when the most important goes first: rows x cols. Equal patches in a random order.

    A fixed order would let every map with many equal values (masks, ReLU) inherit the photographer's composition.
    """
    flat = importance.flatten().cpu()
    shuffle = torch.randperm(flat.numel(), generator=torch.Generator().manual_seed(seed))
    order = shuffle[flat[shuffle].argsort(descending=True, stable=True)]
    return torch.empty_like(order).scatter(0, order, torch.arange(order.numel())).reshape(importance.shape)


def masks(model: VisionTransformer, image: Tensor, ranks: Tensor, steps: int) -> Iterator[Tensor]:
    """Pixels of the first 0/steps, 1/steps ... of the patches: 1 x height x width each."""
    for step in range(steps + 1):
        cells = ranks < round(step / steps * ranks.numel())
        yield to_pixels(cells[None], model.config, size_of(image)).to(image.device)


def in_batches(pictures: Iterator[Tensor]) -> Iterator[Tensor]:
    """Single pictures, a few at a time."""
    waiting: list[Tensor] = []
    for picture in pictures:
        waiting.append(picture)
        if len(waiting) == BATCH:
            yield torch.cat(waiting)
            waiting = []
    if waiting:
        yield torch.cat(waiting)


def area(curve: Tensor) -> float:
    """Under a curve over 0 to 1, by trapezoids."""
    return float(torch.trapezoid(curve.double(), dx=1 / (len(curve) - 1)))
