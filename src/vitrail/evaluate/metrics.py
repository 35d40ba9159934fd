"""Scores and truth to every measure, each with an interval, and to one row per class."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from vitrail.config import Frozen
from vitrail.evaluate import calibration
from vitrail.evaluate.calibration import Bin
from vitrail.evaluate.ranking import Flags, Scores, auroc, average_precision, over_classes, ranked, ratio
from vitrail.evaluate.resampling import DRAWS, SEED, Numbers, Value, measured, share

MOST_RANKED = 500_000_000  # pictures x classes x draws that rankings are drawn again for
FEWEST_DRAWS = 100  # an interval from less would be a guess
HALF = 0.5  # where a class of several is answered with yes
FEWEST_TO_FIT = 20  # pictures a temperature is fitted on, half at a time


@dataclass(frozen=True)
class Answered:
    """What a model said about labelled pictures: a score for each class, and which classes are right."""

    scores: Scores  # log-probabilities; logits of yes where a picture may have several classes
    truth: Flags
    labels: tuple[str, ...]
    several: bool = False

    @property
    def first(self) -> NDArray[np.int64]:
        """The number of each picture's likeliest class."""
        first: NDArray[np.int64] = self.scores.argmax(axis=1)
        return first

    @property
    def yes(self) -> Flags:
        """The classes each picture is said to have."""
        if self.several:
            above: Flags = self.scores > np.log(HALF / (1 - HALF))
            return above
        answer = np.zeros(self.scores.shape, bool)
        answer[np.arange(len(answer)), self.first] = True
        return answer


class ClassRow(Frozen, frozen=True, kw_only=True):
    """One class; what is None is not defined on these pictures."""

    label: str
    pictures: int
    predicted: int
    right: int
    precision: float | None
    recall: float | None
    f1: float | None
    auroc: float | None
    average_precision: float | None


class Metrics(Frozen, frozen=True, kw_only=True):
    """Everything measured. The names of `values` are explained in docs/guide/evaluate.md."""

    pictures: int
    several: bool
    values: dict[str, Value]
    temperature: float | None
    bins: tuple[Bin, ...]
    classes: tuple[ClassRow, ...]
    confusion: tuple[tuple[int, int, int], ...]  # true class, predicted class, pictures; empty where several


def measure(answered: Answered, *, draws: int = DRAWS, seed: int = SEED) -> Metrics:
    """Every measure of a model's answers."""
    count = len(answered.scores)
    if count == 0:
        return Metrics(
            pictures=0, several=answered.several, values={}, temperature=None, bins=(), classes=(), confusion=()
        )
    chances = calibration.probabilities(answered.scores, answered.several)
    fitted = calibration.temperature(answered.scores, answered.truth, answered.several)
    asked = calibration.answers(chances, answered.truth, answered.several)
    measures = [partial(averages, answered), calibrated(answered, seed)]
    values = shares(answered) | measured(measures, count, draws, seed)
    values |= measured([partial(ranks, answered)], count, affordable(answered, draws), seed)
    return Metrics(
        pictures=count,
        several=answered.several,
        values=values,
        temperature=fitted if count >= FEWEST_TO_FIT else None,
        bins=calibration.reliability(*asked),
        classes=tuple(class_rows(answered)),
        confusion=confusion(answered),
    )


def shares(answered: Answered) -> dict[str, Value]:
    """Shares of pictures: right at first, among the first five, or, where several, in every class."""
    count = len(answered.scores)
    if answered.several:
        return {"exact_match": share(float((answered.yes == answered.truth).all(axis=1).sum()), count)}
    right = {"top1": float((places(answered) < 1).sum())}
    if len(answered.labels) > 5:
        right["top5"] = float((places(answered) < 5).sum())
    return {name: share(number, count) for name, number in right.items()}


def places(answered: Answered) -> NDArray[np.int64]:
    """How many classes each picture's right one comes after; the likeliest class comes after none."""
    own = answered.scores[answered.truth][:, None]
    label = answered.truth.argmax(axis=1)[:, None]
    before = (answered.scores > own) | ((answered.scores == own) & (np.arange(answered.scores.shape[1]) < label))
    found: NDArray[np.int64] = before.sum(axis=1)
    return found


def averages(answered: Answered, weights: Numbers) -> dict[str, Numbers]:
    """Precision, recall and F1 over classes that occur, in truth or in an answer, in three kinds of average."""
    right, predicted, actual = counts(answered, weights)
    occurs = (predicted + actual) > 0
    kinds = {
        "precision": ratio(right, predicted, empty=0.0),
        "recall": ratio(right, actual, empty=0.0),
        "f1": ratio(2 * right, predicted + actual, empty=0.0),
    }
    totals = (predicted.sum(axis=1), actual.sum(axis=1), (predicted + actual).sum(axis=1) / 2)
    found: dict[str, Numbers] = {}
    for (name, per_class), total in zip(kinds.items(), totals, strict=True):
        found[f"{name}_macro"] = ratio((per_class * occurs).sum(axis=1), occurs.sum(axis=1))
        found[f"{name}_micro"] = ratio(right.sum(axis=1), total, empty=0.0)
        found[f"{name}_weighted"] = ratio((per_class * actual).sum(axis=1), actual.sum(axis=1))
    return found


def counts(answered: Answered, weights: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Right answers, answers and pictures of each class: draws x classes, three times."""
    if answered.several:
        yes, truth = answered.yes.astype(np.float64), answered.truth.astype(np.float64)
        return weights @ (yes * truth), weights @ yes, weights @ truth
    draws, classes = len(weights), len(answered.labels)
    label, first = answered.truth.argmax(axis=1), answered.first
    rows = np.arange(draws)[:, None] * classes

    def counted(numbers: NDArray[np.int64], weight: Numbers) -> Numbers:
        flat = np.bincount((rows + numbers).ravel(), weight.ravel(), minlength=draws * classes)
        return flat.reshape(draws, classes).astype(np.float64)

    return counted(label, weights * (label == first)), counted(first, weights), counted(label, weights)


def calibrated(answered: Answered, seed: int) -> partial[dict[str, Numbers]]:
    """Loss, Brier score and calibration error, as they are and after temperature scaling."""
    scores, truth, several = answered.scores, answered.truth, answered.several
    chances = calibration.probabilities(scores, several)
    means = {
        "nll": calibration.losses(scores, truth, several),
        "brier": calibration.brier(chances, truth, several),
    }
    errors = {"ece": calibration.gaps(*calibration.answers(chances, truth, several))}
    if len(scores) >= FEWEST_TO_FIT:
        each = calibration.cross_fitted(scores, truth, several, seed)[:, None]
        scaled = (scores / each).astype(np.float32)
        means["nll_scaled"] = calibration.losses(scaled, truth, several)
        chances = calibration.probabilities(scaled, several)
        errors["ece_scaled"] = calibration.gaps(*calibration.answers(chances, truth, several))
    return partial(calibrated_draws, means, errors)


def calibrated_draws(means: dict[str, Numbers], errors: dict[str, Numbers], weights: Numbers) -> dict[str, Numbers]:
    """The same on any draw."""
    pictures = weights.sum(axis=1)
    found = {name: ratio(weights @ vector, pictures) for name, vector in means.items()}
    return found | {name: calibration.expected_error(gap, weights) for name, gap in errors.items()}


def ranks(answered: Answered, weights: Numbers) -> dict[str, Numbers]:
    """The areas, as means over classes; average precision where pictures have several classes."""
    found = {"auroc_macro": over_classes(auroc, answered.scores, answered.truth, weights)}
    if answered.several:
        found["map"] = over_classes(average_precision, answered.scores, answered.truth, weights)
    return found


def affordable(answered: Answered, draws: int) -> int:
    """So many draws of the rankings as take seconds; none where that is too few for an interval."""
    most = min(draws, MOST_RANKED // max(answered.scores.size, 1))
    return most if most >= FEWEST_DRAWS else 0


def class_rows(answered: Answered) -> list[ClassRow]:
    """Every class by itself."""
    right, predicted, actual = (numbers[0].tolist() for numbers in counts(answered, np.ones((1, len(answered.scores)))))
    rows = []
    for number, label in enumerate(answered.labels):
        hits, said, there = right[number], predicted[number], actual[number]
        areas = areas_of(answered, number)
        rows.append(
            ClassRow(
                label=label,
                pictures=int(there),
                predicted=int(said),
                right=int(hits),
                precision=hits / said if said else None,
                recall=hits / there if there else None,
                f1=2 * hits / (said + there) if said + there else None,
                auroc=areas[0],
                average_precision=areas[1],
            )
        )
    return rows


def areas_of(answered: Answered, number: int) -> tuple[float | None, float | None]:
    """AUROC and average precision of one class against all others."""
    positive = answered.truth[:, number]
    if not 0 < positive.sum() < len(positive):
        return None, None
    ranking, once = ranked(answered.scores[:, number], positive), np.ones((1, len(positive)))
    return float(auroc(ranking, once)[0]), float(average_precision(ranking, once)[0])


def confusion(answered: Answered) -> tuple[tuple[int, int, int], ...]:
    """How many pictures of which class were taken for which; only pairs that occur."""
    if answered.several:
        return ()
    classes = len(answered.labels)
    codes, pictures = np.unique(answered.truth.argmax(axis=1) * classes + answered.first, return_counts=True)
    return tuple((int(c) // classes, int(c) % classes, int(n)) for c, n in zip(codes, pictures, strict=True))
