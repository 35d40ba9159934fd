"""Quality against speed while heads go: both measured, on the same machine in the same minutes, not estimated."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vitrail.model.vit import VisionTransformer
from vitrail.prune.budget import Budget, Head, by_layer
from vitrail.prune.surgery import prune_heads
from vitrail.prune.task import Task, answers

ROUNDS = 7  # turns of the timing; a speed is the median of the turns' ratios


@dataclass(frozen=True)
class Quality:
    """How well a model with `heads` fewer heads does the task."""

    heads: int
    quality: float
    loss: float


@dataclass(frozen=True)
class Point(Quality):
    """The same, with its cost. `speed` is times the unpruned model's, with quartiles over the turns."""

    milliseconds: float
    speed: float
    speed_low: float
    speed_high: float
    parameters: int


def curve(
    model: VisionTransformer, order: Sequence[Head], counts: Sequence[int], task: Task, rounds: int = ROUNDS
) -> list[Point]:
    """Take out the first 0, n, m ... heads of the order, and measure each model beside the whole one."""
    return [beside(model, prune_heads(model, by_layer(order[:count])), count, task, rounds) for count in counts]


def beside(model: VisionTransformer, smaller: VisionTransformer, heads: int, task: Task, rounds: int = ROUNDS) -> Point:
    """One smaller model, timed in turns with the whole one; no more than two models are in memory."""
    reference, seconds = interleaved([model, smaller], task.images[: task.batch_size], rounds)
    return measured(smaller, heads, task, seconds, reference)


def measured(model: VisionTransformer, heads: int, task: Task, seconds: list[float], reference: list[float]) -> Point:
    """One point of the curve."""
    found = quality_of(model, heads, task)
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


def quality_of(model: VisionTransformer, heads: int, task: Task) -> Quality:
    """How well the model does the task."""
    outputs = answers(model, task)
    return Quality(heads, task.quality(outputs), float(task.losses(outputs, slice(None)).mean()))


def chance_curve(
    model: VisionTransformer, orders: Sequence[Sequence[Head]], counts: Sequence[int], task: Task
) -> list[Quality]:
    """Quality when heads go in random orders, averaged over those. Their speed is that of any others."""
    found = []
    for count in counts:
        each = [quality_of(prune_heads(model, by_layer(order[:count])), count, task) for order in orders]
        quality, loss = (statistics.fmean(getattr(one, name) for one in each) for name in ("quality", "loss"))
        found.append(Quality(count, quality, loss))
    return found


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
        least = points[0].quality - budget.max_drop / 100 - 1e-9
        return max((point for point in points if point.quality >= least), key=lambda point: point.heads)
    assert budget.speed is not None
    fast = [point for point in points if point.speed >= budget.speed]
    return min(fast, key=lambda point: point.heads) if fast else None
