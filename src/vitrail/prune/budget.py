"""How much to prune: a share of the heads, a drop that is allowed, a speed that is wanted."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vitrail.errors import UsageError

Head = tuple[int, int]  # layer, and the number in it


@dataclass(frozen=True)
class Budget:
    """Exactly one of: a number of heads, points of quality to lose, times as fast."""

    heads: int | None = None
    max_drop: float | None = None
    speed: float | None = None


def budget_of(there: int, heads: str | int | None, max_drop: float | None, speed: str | float | None) -> Budget:
    """What was asked for, checked against the number of heads there are. Nothing asked for: 30% of them."""
    given = [value for value in (heads, max_drop, speed) if value is not None]
    if len(given) > 1:
        raise UsageError("More than one budget was given.", "One of heads, max_drop and speed.", "")
    if max_drop is not None:
        return Budget(max_drop=_number("max_drop", max_drop, "points of quality, such as 0.5", 0, 100))
    if speed is not None:
        return Budget(speed=_number("speed", str(speed).removesuffix("x"), "times as fast, such as 1.3x", 1, 100))
    return Budget(heads=share_of(there, "30%" if heads is None else heads, "heads"))


def share_of(there: int, asked: str | int, what: str) -> int:
    """A number, or a percentage of what there is."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(%?)\s*", str(asked))
    count = -1 if not found else round(float(found[1]) / 100 * there) if found[2] else int(float(found[1]))
    if not 0 <= count <= there:
        raise UsageError(
            f"{what} is {asked!r}.", f"A number from 0 to {there}, or a percentage.", f"Such as {what} 30%"
        )
    return count


def least_important(scores: Tensor) -> list[Head]:
    """Every head there is, across all layers, the one missed least first."""
    there = (~scores.isnan()).nonzero()
    order = scores[~scores.isnan()].argsort(stable=True)
    return [(layer, head) for layer, head in there[order].tolist()]


def by_layer(heads: Sequence[Head]) -> dict[int, list[int]]:
    """Layer to its heads, as prune_heads takes them."""
    found: dict[int, list[int]] = {}
    for layer, head in heads:
        found.setdefault(layer, []).append(head)
    return {layer: sorted(found[layer]) for layer in sorted(found)}


def counts_to_try(there: int, points: int, exactly: int | None) -> list[int]:
    """How many heads to take out at each point of a curve, up to 90% of them, the number asked for among them."""
    even = torch.linspace(0, 0.9 * there, points).round().int().tolist()
    return sorted({*even, *([] if exactly is None else [exactly])})


def _number(name: str, value: object, meaning: str, low: float, high: float) -> float:
    try:
        number = float(str(value))
    except ValueError:
        number = float("nan")
    if not low <= number <= high:
        raise UsageError(f"{name} is {value!r}.", f"{meaning[0].upper()}{meaning[1:]}.", "")
    return number
