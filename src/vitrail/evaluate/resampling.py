"""How sure a measure is: the same measure on pictures drawn again and again from the same pictures.

A measure here is a function of weights (draws x pictures, how often each picture counts). Weights of one give the value
itself, so a value and its interval cannot come from two different formulas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from vitrail.config import Frozen

Numbers = NDArray[np.float64]
Measure = Callable[[Numbers], dict[str, Numbers]]  # weights (draws x pictures) to a value per draw, by name

DRAWS, SEED = 1000, 0
INSIDE = 0.95
AT_ONCE = 2_000_000  # weights in memory
NORMAL = NormalDist()


class Value(Frozen, frozen=True, kw_only=True):
    """A measure and its 95% interval; without low and high, drawing it again would have taken too long."""

    value: float | None  # None: not defined on these pictures
    low: float | None = None
    high: float | None = None


def measured(measures: Sequence[Measure], pictures: int, draws: int = DRAWS, seed: int = SEED) -> dict[str, Value]:
    """Every value with its interval, all on the same draws."""
    once = {name: float(value[0]) for measure in measures for name, value in measure(np.ones((1, pictures))).items()}
    again: dict[str, list[Numbers]] = {name: [] for name in once}
    for weights in resamples(pictures, draws, seed):
        for measure in measures:
            for name, values in measure(weights).items():
                again[name].append(values)
    return {name: with_interval(value, np.concatenate(again[name] or [np.empty(0)])) for name, value in once.items()}


def resamples(pictures: int, draws: int, seed: int) -> Iterator[Numbers]:
    """How often each picture is drawn, some draws at a time; the same for the same seed."""
    random = np.random.default_rng(seed)
    rows = max(1, AT_ONCE // pictures)
    for start in range(0, draws, rows):
        count = min(rows, draws - start)
        drawn = random.integers(0, pictures, (count, pictures)) + pictures * np.arange(count)[:, None]
        yield np.bincount(drawn.ravel(), minlength=count * pictures).reshape(count, pictures).astype(np.float64)


def with_interval(value: float, again: Numbers) -> Value:
    """The bias-corrected percentile interval (Efron, 1981); a draw a measure is not defined on does not count."""
    if not np.isfinite(value):
        return Value(value=None)
    again = np.sort(again[np.isfinite(again)])
    if len(again) < 2:
        return Value(value=value)
    below = (again < value).mean() + (again == value).mean() / 2
    shift = NORMAL.inv_cdf(float(np.clip(below, 1e-3, 1 - 1e-3)))
    ends = [NORMAL.cdf(2 * shift + NORMAL.inv_cdf(share)) for share in ((1 - INSIDE) / 2, (1 + INSIDE) / 2)]
    low, high = np.quantile(again, ends)
    return Value(value=value, low=min(float(low), value), high=max(float(high), value))


def share(right: float, pictures: int) -> Value:
    """A share of right answers with Wilson's interval: unlike a drawn one, it knows that 50 of 50 is not certainty."""
    z, p = NORMAL.inv_cdf((1 + INSIDE) / 2), right / pictures
    centre, scale = p + z * z / (2 * pictures), 1 + z * z / pictures
    half = z * (p * (1 - p) / pictures + z * z / (4 * pictures**2)) ** 0.5
    return Value(value=p, low=max(0.0, (centre - half) / scale), high=min(1.0, (centre + half) / scale))
