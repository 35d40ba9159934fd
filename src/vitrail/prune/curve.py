"""Quality against speed while heads go: both measured, on the same machine in the same minutes, not estimated."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vitrail.model.vit import VisionTransformer
from vitrail.prune.budget import Budget
from vitrail.prune.task import Task, answers

DRAWS = 2000  # bootstrap samples of images
ROUNDS = 7  # turns of the timing; a speed is the median of the turns' ratios


@dataclass(frozen=True)
class Quality:
    """How well a model with `heads` fewer heads does the task.

    `change` is the quality's difference from the model's before, image by image, with its 95% bootstrap interval: while
    it holds zero, nothing that these images can measure was lost.
    """

    heads: int
    quality: float
    loss: float
    change: float
    change_low: float
    change_high: float


@dataclass(frozen=True)
class Point(Quality):
    """The same, with its cost. `speed` is times the unpruned model's, with quartiles over the turns."""

    milliseconds: float
    speed: float
    speed_low: float
    speed_high: float
    parameters: int


@dataclass(frozen=True)
class Whole:
    """What every smaller model is measured against: the model before, and its quality on each image of the task."""

    model: VisionTransformer
    task: Task
    qualities: Tensor


def whole_of(model: VisionTransformer, task: Task) -> Whole:
    """The model before, measured once."""
    return Whole(model, task, task.qualities(answers(model, task)))


def beside(whole: Whole, smaller: VisionTransformer, heads: int, rounds: int = ROUNDS) -> Point:
    """One smaller model, timed in turns with the whole one; no more than two models are in memory."""
    images = whole.task.images[: whole.task.batch_size]
    reference, seconds = interleaved([whole.model, smaller], images, rounds)
    return measured(whole, smaller, heads, seconds, reference)


def measured(whole: Whole, model: VisionTransformer, heads: int, seconds: list[float], reference: list[float]) -> Point:
    """One point of the curve."""
    found = quality_of(whole, model, heads)
    ratios = [slow / fast for slow, fast in zip(reference, seconds, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    return Point(
        **vars(found),
        milliseconds=1000 * statistics.median(seconds),
        speed=middle,
        speed_low=low,
        speed_high=high,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
    )


def quality_of(whole: Whole, model: VisionTransformer, heads: int) -> Quality:
    """How well the model does the task, and how much better or worse than the whole one."""
    outputs = answers(model, whole.task)
    each = whole.task.qualities(outputs)
    loss = float(whole.task.losses(outputs, slice(None)).mean())
    return Quality(heads, float(each.mean()), loss, *change(each - whole.qualities))


def change(differences: Tensor) -> tuple[float, float, float]:
    """The mean over images and the middle 95% of the means of samples drawn with replacement."""
    generator = torch.Generator().manual_seed(0)
    picked = torch.randint(0, len(differences), (DRAWS, len(differences)), generator=generator)
    low, high = differences[picked].mean(1).quantile(torch.tensor([0.025, 0.975], dtype=differences.dtype)).tolist()
    return float(differences.mean()), low, high


def mean_quality(each: Sequence[Quality]) -> Quality:
    """Of several orders of the same number of heads; the interval spans theirs."""
    heads, (quality, loss, mean) = (
        each[0].heads,
        (statistics.fmean(getattr(one, name) for one in each) for name in ("quality", "loss", "change")),
    )
    return Quality(
        heads, quality, loss, mean, min(one.change_low for one in each), max(one.change_high for one in each)
    )


def interleaved(models: Sequence[VisionTransformer], images: Tensor, rounds: int) -> list[list[float]]:
    """Seconds of each model's forward passes, taking turns, so that a busy minute meets all of them."""
    seconds: list[list[float]] = [[] for _ in models]
    with torch.inference_mode():
        for turn in range(rounds + 1):  # the first does not count
            for model, each in zip(models, seconds, strict=True):
                started = time.perf_counter()
                model(images)
                each += [time.perf_counter() - started] if turn else []
    return seconds


def chosen(points: Sequence[Point], budget: Budget) -> Point | None:
    """The point a budget asks for: exactly so many heads, the most within the drop, the fewest that are fast enough."""
    if budget.heads is not None:
        return next(point for point in points if point.heads == budget.heads)
    if budget.max_drop is not None:
        good = [point for point in points if point.change >= -budget.max_drop / 100 - 1e-9]
        return max(good, key=lambda point: point.heads, default=None)
    assert budget.speed is not None
    fast = [point for point in points if point.speed >= budget.speed]
    return min(fast, key=lambda point: point.heads, default=None)


def unmeasurable(points: Sequence[Quality]) -> Quality:
    """The most heads that go before the interval of the change leaves zero behind."""
    found = points[0]
    for point in points[1:]:
        if point.change_high < 0:
            break
        found = point
    return found
