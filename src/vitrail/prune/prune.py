"""Take out what a model misses least, within a budget; quality and speed measured, beside a random choice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from vitrail.errors import UsageError, did_you_mean
from vitrail.model.vit import VisionTransformer
from vitrail.prune.budget import Budget, Head, budget_of, by_layer, counts_to_try, least_important, share_of
from vitrail.prune.curve import ROUNDS, Point, Quality, Whole, beside, chosen, mean_quality, quality_of, whole_of
from vitrail.prune.recover import recover as relearn
from vitrail.prune.scores import SCORES, Score, block_scores, head_scores, neuron_scores
from vitrail.prune.smaller import prune_layers, prune_neurons
from vitrail.prune.surgery import prune_heads
from vitrail.prune.task import Task, task_for

POINTS = 10  # of the curve
RANDOM_ORDERS = 3


@dataclass(frozen=True)
class Pruned:
    """The smaller model, and how it was found.

    `before` and `after` are measured in one interleaved run, on images the scores did not see. `curve` takes heads
    out by importance, `chance` in random orders; both start from what was left after layers and neurons went, and are
    measured against the whole model.
    """

    model: VisionTransformer
    score: str
    importance: Tensor  # layers x heads; NaN where a head was gone before
    removed: dict[int, list[int]]
    layers: list[int]
    neurons: int  # of each MLP
    measure: str
    before: Point
    after: Point
    curve: list[Point]
    chance: list[Quality]
    recovery: list[float] = field(default_factory=list)


def prune(
    model: VisionTransformer,
    images: Tensor,
    labels: Tensor | Sequence[int] | None = None,
    *,
    heads: str | int | None = None,
    max_drop: float | None = None,
    speed: str | float | None = None,
    layers: int = 0,
    neurons: str | int = 0,
    score: Score = "ablation",
    rounds: int = 1,
    recover: int = 0,
    points: int = POINTS,
    batch_size: int = 8,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Pruned:
    """Prune heads by one budget: `heads` ("30%" or a number), `max_drop` (points of quality) or `speed` ("1.3x").

    Normalised images are split in two: every other one scores, the rest measure. `rounds` is how often heads are
    scored anew while they go. `layers` takes out so many whole blocks first, `neurons` so many (or "25%") of each MLP;
    with either of those, no heads go unless a budget says so. `recover` is a number of fine-tuning steps at the end.
    `progress` is told how many of how many models are measured.
    """
    if score not in SCORES:
        raise UsageError(f"There is no score {score!r}.", did_you_mean(score, SCORES), "")
    scoring, measuring = split_tasks(model, images, labels, batch_size)
    fewer, gone, narrower = without_blocks_and_neurons(model, scoring, layers, neurons, seed)
    there = sum(len(fewer.config.heads_in(layer)) for layer in range(fewer.config.num_hidden_layers))
    only_blocks = (gone or narrower) and (heads, max_drop, speed) == (None, None, None)
    budget = budget_of(there, 0 if only_blocks else heads, max_drop, speed)
    counts = counts_to_try(there, points, budget.heads)
    if progress:
        progress(0, len(counts))
    order, importance = head_order(fewer, scoring, score, rounds, seed)
    whole = whole_of(model, measuring)
    along, chance = curves(whole, fewer, order, counts, seed, progress)
    point = chosen(along, budget)
    if point is None:
        raise out_of_reach(along, budget, there)
    removed = by_layer(order[: point.heads])
    smaller = prune_heads(fewer, removed)
    losses = relearn(smaller, model, scoring.images, recover, batch_size, seed) if recover else []
    before, after = (beside(whole, one, heads, 2 * ROUNDS) for one, heads in ((model, 0), (smaller, point.heads)))
    return Pruned(
        *(smaller.eval(), score, importance, removed, gone, narrower, measuring.measure),
        *(before, after, along, chance, losses),
    )


def curves(
    whole: Whole,
    fewer: VisionTransformer,
    order: Sequence[Head],
    counts: Sequence[int],
    seed: int,
    progress: Callable[[int, int], None] | None,
) -> tuple[list[Point], list[Quality]]:
    """The first 0, n, m ... heads of the order taken out; and as many in random orders, averaged."""
    random_orders = [random_order(order, seed + i) for i in range(RANDOM_ORDERS)]
    along: list[Point] = []
    chance: list[Quality] = []
    for count in counts:
        along.append(beside(whole, prune_heads(fewer, by_layer(order[:count])), count))
        each = (prune_heads(fewer, by_layer(one[:count])) for one in random_orders)
        chance.append(mean_quality([quality_of(whole, one, count) for one in each]))
        if progress:
            progress(len(along), len(counts))
    return along, chance


def out_of_reach(along: Sequence[Point], budget: Budget, there: int) -> UsageError:
    """What to say when no point of the curve is within the budget."""
    if budget.speed is not None:
        fastest = max(along, key=lambda one: one.speed)
        return UsageError(
            f"No number of heads makes the model {budget.speed}x as fast.",
            f"The fastest was {fastest.speed:.2f}x, with {fastest.heads} of {there} heads gone.",
            "Ask for less, or prune layers and neurons too.",
        )
    best = max(along, key=lambda one: one.change)
    return UsageError(
        f"Every number of heads costs more than {budget.max_drop} points.",
        f"The least was {-100 * best.change:.2f}, with {best.heads} of {there} heads gone.",
        "Allow more, or take out fewer layers and neurons.",
    )


def split_tasks(
    model: VisionTransformer, images: Tensor, labels: Tensor | Sequence[int] | None, batch_size: int
) -> tuple[Task, Task]:
    """Every other image to score on, the rest to measure on."""
    task = task_for(model, images, None if labels is None else torch.as_tensor(labels), batch_size)
    return task.part(slice(0, None, 2)), task.part(slice(1, None, 2))


def without_blocks_and_neurons(
    model: VisionTransformer, task: Task, layers: int, neurons: str | int, seed: int
) -> tuple[VisionTransformer, list[int], int]:
    """The model without its least missed blocks and neurons, which blocks those were, and how many neurons."""
    gone: list[int] = []
    fewer = model
    kept = list(range(model.config.num_hidden_layers))
    for _ in range(share_of(len(kept) - 1, layers, "layers")):  # one by one: neighbours often stand in for each other
        least = int(block_scores(fewer, task).argmin())
        fewer = prune_layers(fewer, [least])
        gone.append(kept.pop(least))
    width = share_of(model.config.intermediate_size - 1, neurons, "neurons")
    if width:
        scores = neuron_scores(fewer, task, seed)
        fewer = prune_neurons(fewer, [each.argsort(stable=True)[:width].tolist() for each in scores])
    return fewer, sorted(gone), width


def head_order(model: VisionTransformer, task: Task, score: Score, rounds: int, seed: int) -> tuple[list[Head], Tensor]:
    """Heads in the order to take them out, and their importance in the whole model.

    With more rounds, what is left is scored anew after each part of the heads has gone: two heads that stand in for
    each other are each missed little, but not both.
    """
    importance = head_scores(model, task, score, seed)
    order = least_important(importance)
    done: list[Head] = []
    there = len(order)
    for turn in range(1, rounds):
        done += order[: there * turn // rounds - len(done)]
        order = least_important(head_scores(prune_heads(model, by_layer(done)), task, score, seed))
    return done + order, importance


def random_order(order: Sequence[Head], seed: int) -> list[Head]:
    """The same heads, shuffled."""
    places = torch.randperm(len(order), generator=torch.Generator().manual_seed(seed)).tolist()
    return [order[place] for place in places]
