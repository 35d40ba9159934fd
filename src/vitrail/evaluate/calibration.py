"""Whether a model is right as often as it says: calibration error, and the temperature that would mend it.

Scores are log-probabilities where a picture has one class, and logits of yes where it may have several; dividing either
by a temperature before the softmax or the sigmoid is temperature scaling (Guo et al., 2017).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vitrail.config import Frozen
from vitrail.evaluate.ranking import Flags, Scores, ratio
from vitrail.evaluate.resampling import Numbers

BINS = 15
COLDEST, HOTTEST = 0.05, 20.0  # a model that is never wrong would be cooled for ever
STEPS = 40
ROWS = 4096  # pictures at a time, so that doubles of many classes fit


class Bin(Frozen, frozen=True, kw_only=True):
    """Answers of about the same confidence, and how often they were right."""

    low: float
    high: float
    answers: int
    confidence: float
    accuracy: float


def probabilities(scores: Scores, several: bool, temperature: float = 1.0) -> Numbers:
    """Softmax or sigmoid of scores at a temperature."""
    scaled = scores.astype(np.float64) / temperature
    if several:
        return 0.5 * (1 + np.tanh(scaled / 2))
    odds = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    result: Numbers = odds / odds.sum(axis=1, keepdims=True)
    return result


def losses(scores: Scores, truth: Flags, several: bool, temperature: float = 1.0) -> Numbers:
    """Each picture's negative log-likelihood; where it may have several classes, their mean."""
    scaled = scores.astype(np.float64) / temperature
    if several:
        mean: Numbers = np.logaddexp(0, np.where(truth, -scaled, scaled)).mean(axis=1)
        return mean
    highest = scaled.max(axis=1)
    total = highest + np.log(np.exp(scaled - highest[:, None]).sum(axis=1))
    loss: Numbers = total - scaled[truth]
    return loss


def brier(chances: Numbers, truth: Flags, several: bool) -> Numbers:
    """Each picture's squared distance from the truth: the sum over classes (0 to 2), or their mean where several."""
    squares = (chances - truth) ** 2
    result: Numbers = squares.mean(axis=1) if several else squares.sum(axis=1)
    return result


def answers(chances: Numbers, truth: Flags, several: bool) -> tuple[Numbers, Flags]:
    """Confidence and rightness, pictures x answers: of the first class, or of yes to each of several."""
    if several:
        return chances, truth
    first = chances.argmax(axis=1)[:, None]
    return np.take_along_axis(chances, first, 1), np.take_along_axis(truth, first, 1)


def bin_of(confidence: Numbers, bins: int = BINS) -> NDArray[np.int64]:
    """Bins are open below and closed above, as in Guo et al."""
    return np.clip(np.ceil(confidence * bins).astype(np.int64) - 1, 0, bins - 1)


def gaps(confidence: Numbers, right: Flags, bins: int = BINS) -> Numbers:
    """How much each picture adds to the distance between confidence and accuracy of each bin: pictures x bins."""
    rows = np.arange(len(confidence))[:, None] * bins + bin_of(confidence, bins)
    flat = np.bincount(rows.ravel(), (right - confidence).ravel(), minlength=len(confidence) * bins)
    each: Numbers = flat.reshape(-1, bins) / confidence.shape[1]
    return each


def expected_error(gap: Numbers, weights: Numbers) -> Numbers:
    """The expected calibration error: per draw, the bins' distances, each as heavy as its answers are many."""
    return ratio(np.abs(weights @ gap).sum(axis=1), weights.sum(axis=1))


def reliability(confidence: Numbers, right: Flags, bins: int = BINS) -> tuple[Bin, ...]:
    """The reliability diagram, as numbers."""
    place, count = bin_of(confidence, bins).ravel(), bins
    answered = np.bincount(place, minlength=count)
    said = ratio(np.bincount(place, confidence.ravel(), minlength=count), answered, empty=0.0)
    was = ratio(np.bincount(place, right.ravel(), minlength=count), answered, empty=0.0)
    return tuple(
        Bin(
            low=n / bins,
            high=(n + 1) / bins,
            answers=int(answered[n]),
            confidence=float(said[n]),
            accuracy=float(was[n]),
        )
        for n in range(bins)
    )


def temperature(scores: Scores, truth: Flags, several: bool) -> float:
    """The temperature of the least loss: Newton's method on its inverse, in which the loss is convex."""
    low, high, cold = 1 / HOTTEST, 1 / COLDEST, 1.0
    for _ in range(STEPS):
        slope, curve = slope_and_curve(scores, truth, several, cold)
        low, high = (low, cold) if slope > 0 else (cold, high)
        guess = cold - slope / curve if curve > 0 else cold
        guess = guess if low < guess < high else (low + high) / 2
        if abs(guess - cold) < 1e-7 * cold:
            break
        cold = guess
    return 1 / cold


def slope_and_curve(scores: Scores, truth: Flags, several: bool, cold: float) -> tuple[float, float]:
    """First and second derivative of the summed loss by the inverse temperature."""
    slope = curve = 0.0
    for start in range(0, len(scores), ROWS):
        some, yes = scores[start : start + ROWS].astype(np.float64), truth[start : start + ROWS]
        chances = probabilities(some.astype(np.float32), several, 1 / cold)
        if several:
            slope += float((some * (chances - yes)).sum())
            curve += float((some**2 * chances * (1 - chances)).sum())
        else:
            finite = np.maximum(some, -1e4)  # the logarithm of nothing is no number to multiply by
            mean = (finite * chances).sum(axis=1)
            slope += float((mean - finite[yes]).sum())
            curve += float(((finite**2 * chances).sum(axis=1) - mean**2).sum())
    return slope, curve


def cross_fitted(scores: Scores, truth: Flags, several: bool, seed: int) -> Numbers:
    """A temperature for each picture, fitted on the half it is not in: what scaling would do for new pictures."""
    second = np.random.default_rng(seed).permutation(len(scores)) % 2 == 1
    result = np.ones(len(scores))
    for half in (second, ~second):
        result[half] = temperature(scores[~half], truth[~half], several)
    return result
