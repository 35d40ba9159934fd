"""Which method to trust for this model: every method's faithfulness on a sample of pictures, with intervals."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vitrail.errors import UsageError
from vitrail.explain.faithfulness import Scores, faithfulness, per_patch, random_maps
from vitrail.explain.methods import RANKED, known_methods, run
from vitrail.explain.record import evaluating, size_of
from vitrail.explain.sanity import spearman, wholly_shuffled
from vitrail.explain.target import Asked, asked_of, target_of
from vitrail.model.vit import VisionTransformer

MEASURES = ("deletion", "insertion", "road", "total")
DRAWS = 2000  # bootstrap samples of pictures


@dataclass(frozen=True)
class Interval:
    """A mean over pictures, and where it lies in 95% of bootstrap samples."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Rank:
    """One method. `over_random` is by how much its total beats a random order's, picture by picture.

    `agreement` is the map's rank correlation with that of a wholly shuffled model: near 1, it shows the picture only.
    """

    method: str
    deletion: Interval
    insertion: Interval
    road: Interval
    total: Interval
    over_random: Interval
    agreement: float
    seconds: float

    @property
    def verdict(self) -> str:
        """What a user should make of the method."""
        if self.agreement > 0.5:
            return "does not depend on the model"
        if self.over_random.low > 0:
            return "better than random"
        return "worse than random" if self.over_random.high < 0 else "no better than random"


def compare(
    model: VisionTransformer,
    images: Tensor,
    method: str | Sequence[str] = "all",
    *,
    target: Asked = None,
    steps: int = 10,
    batch_size: int = 8,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> list[Rank]:
    """Rank methods by mean faithfulness on normalised images, best first, the random baseline among them.

    `progress` is told how many of how many methods are measured.
    """
    if len(images) < 2:
        raise UsageError(f"{len(images)} picture to compare on.", "At least 2; 50 give useful intervals.", "")
    names = [name for name in known_methods(method) if name in RANKED]
    grid = model.config.grid_for(size_of(images))
    with evaluating(model):
        found = [target_of(model, model(some), None) for some in torch.split(images, batch_size)]
    if target is None and found[0].classes is not None:
        target = torch.cat([one.classes for one in found if one.classes is not None]).tolist()
    shuffled = wholly_shuffled(model, seed)
    chance = measured(model, images, random_maps(len(images), grid, seed), target, steps, seed)
    ranks = [rank("random", chance, chance, 0.0, 0.0, seed)]
    for done, name in enumerate(names):
        if progress:
            progress(done, len(names))
        started = time.perf_counter()
        maps = maps_of(name, model, images, target, batch_size)
        seconds = (time.perf_counter() - started) / len(images)
        scores = measured(model, images, maps, target, steps, seed)
        other = maps_of(name, shuffled, images[:batch_size], asked_of(target, 0, batch_size), batch_size)
        agreement = float(spearman(maps[:batch_size].flatten(1), other.flatten(1)).mean())
        ranks.append(rank(name, scores, chance, agreement, seconds, seed))
    return sorted(ranks, key=lambda one: -one.total.mean)


def maps_of(name: str, model: VisionTransformer, images: Tensor, target: Asked, batch_size: int) -> Tensor:
    """A method's maps over patches for many images."""
    found = []
    for start in range(0, len(images), batch_size):
        some = images[start : start + batch_size]
        with evaluating(model):
            wanted = target_of(model, model(some), asked_of(target, start, len(some)))
        maps = run(name, model, some, wanted, {})
        assert isinstance(maps, Tensor)
        found.append(per_patch(model, some, maps))
    return torch.cat(found)


def measured(
    model: VisionTransformer, images: Tensor, maps: Tensor, target: Asked, steps: int, seed: int
) -> dict[str, NDArray[np.float64]]:
    """Each measure as an array over pictures."""
    scores: list[Scores] = faithfulness(model, images, maps, target=target, steps=steps, seed=seed)
    return {measure: np.array([getattr(one, measure) for one in scores]) for measure in MEASURES}


def rank(
    name: str,
    scores: dict[str, NDArray[np.float64]],
    chance: dict[str, NDArray[np.float64]],
    agreement: float,
    seconds: float,
    seed: int,
) -> Rank:
    """A row of the ranking."""
    intervals = {measure: bootstrap(values, seed) for measure, values in scores.items()}
    over = bootstrap(scores["total"] - chance["total"], seed)
    return Rank(name, **intervals, over_random=over, agreement=agreement, seconds=seconds)


def bootstrap(values: NDArray[np.float64], seed: int = 0, draws: int = DRAWS) -> Interval:
    """The mean and the middle 95% of the means of samples drawn with replacement."""
    picked = np.random.default_rng(seed).integers(0, len(values), (draws, len(values)))
    low, high = np.quantile(values[picked].mean(axis=1), [0.025, 0.975])
    return Interval(float(values.mean()), float(low), float(high))
