"""How well scores put the pictures of a class before the others: area under the ROC curve, and average precision."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vitrail.evaluate.resampling import Numbers

Flags = NDArray[np.bool_]
Scores = NDArray[np.float32]


@dataclass(frozen=True)
class Ranking:
    """One class: the pictures by falling score, and where each run of equal scores begins."""

    order: NDArray[np.int64]
    starts: NDArray[np.int64]
    positive: Flags  # by falling score

    def counts(self, weights: Numbers) -> tuple[Numbers, Numbers]:
        """Positives and negatives at each score, highest first: draws x scores."""
        ordered = weights[:, self.order]
        positive = np.add.reduceat(ordered * self.positive, self.starts, axis=1)
        return positive, np.add.reduceat(ordered, self.starts, axis=1) - positive


def ranked(scores: Scores, positive: Flags) -> Ranking:
    """Sorted once for all draws."""
    order = np.argsort(-scores, kind="stable")
    ordered = scores[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    return Ranking(order, starts, positive[order])


def auroc(ranking: Ranking, weights: Numbers) -> Numbers:
    """The chance that a picture of the class scores above another one; ties count half. NaN without both kinds."""
    positive, negative = ranking.counts(weights)
    below = negative.sum(1, keepdims=True) - negative.cumsum(1)
    pairs = positive.sum(1) * negative.sum(1)
    return ratio((positive * (below + negative / 2)).sum(1), pairs)


def average_precision(ranking: Ranking, weights: Numbers) -> Numbers:
    """Precision at each score, weighted by the recall gained there, nothing interpolated. NaN without positives."""
    positive, negative = ranking.counts(weights)
    precision = ratio(positive.cumsum(1), (positive + negative).cumsum(1), empty=0.0)
    return ratio((positive * precision).sum(1), positive.sum(1))


def rankings(scores: Scores, truth: Flags) -> Iterator[Ranking]:
    """One ranking for each class that some pictures belong to and some do not, one after the other."""
    for label in range(truth.shape[1]):
        if 0 < truth[:, label].sum() < len(truth):
            yield ranked(scores[:, label], truth[:, label])


def over_classes(
    of_one: Callable[[Ranking, Numbers], Numbers], scores: Scores, truth: Flags, weights: Numbers
) -> Numbers:
    """The mean over classes; in a draw that lost a class altogether, over the others."""
    total, classes = np.zeros(len(weights)), np.zeros(len(weights))
    for ranking in rankings(scores, truth):
        values = of_one(ranking, weights)
        total += np.nan_to_num(values)
        classes += np.isfinite(values)
    return ratio(total, classes)


def ratio(above: NDArray[Any], below: NDArray[Any], empty: float = np.nan) -> Numbers:
    """A division that says `empty` where there is nothing to divide by."""
    result: Numbers = np.full(np.broadcast(above, below).shape, empty)
    np.divide(above, below, out=result, where=below > 0)
    return result
