"""The measures by name: what people call each, which way is good, and one sentence. docs/guide/evaluate.md has more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from vitrail.evaluate.resampling import Value


@dataclass(frozen=True)
class Measure:
    """How one value of `Metrics.values` is told."""

    title: str
    better: Literal["high", "low"]
    says: str
    share: bool = True  # told as a percentage


MEASURES = {
    "top1": Measure("top-1 accuracy", "high", "Pictures whose likeliest class is the right one."),
    "top5": Measure("top-5 accuracy", "high", "Pictures whose right class is among the five likeliest."),
    "exact_match": Measure("exact match", "high", "Pictures with a right answer for every class."),
    "f1_macro": Measure("F1, mean of classes", "high", "Harmonic mean of precision and recall."),
    "precision_macro": Measure("precision, mean of classes", "high", "Of the answers of a class, the right ones."),
    "recall_macro": Measure("recall, mean of classes", "high", "Of the pictures of a class, those that are found."),
    "f1_weighted": Measure("F1, by pictures", "high", "The mean over classes, each as heavy as its pictures are many."),
    "precision_weighted": Measure("precision, by pictures", "high", "Each class as heavy as its pictures are many."),
    "recall_weighted": Measure("recall, by pictures", "high", "Each class as heavy as its pictures are many."),
    "f1_micro": Measure("F1, all answers", "high", "Over all answers, whatever their class."),
    "precision_micro": Measure("precision, all answers", "high", "Over all answers, whatever their class."),
    "recall_micro": Measure("recall, all answers", "high", "Over all answers, whatever their class."),
    "auroc_macro": Measure(
        "AUROC, mean of classes", "high", "The chance that a picture of a class scores above one of another.", False
    ),
    "map": Measure("average precision, mean of classes", "high", "The area under precision against recall.", False),
    "ece": Measure("calibration error", "low", "How far confidence is from accuracy, on average."),
    "ece_scaled": Measure("calibration error, scaled", "low", "With temperatures fitted on the other half."),
    "nll": Measure("loss", "low", "Negative log-likelihood: the surprise at the right class.", False),
    "nll_scaled": Measure("loss, scaled", "low", "With temperatures fitted on the other half.", False),
    "brier": Measure("Brier score", "low", "The squared distance of the probabilities from the truth.", False),
}
SAME_WHERE_ONE_CLASS = ("precision_micro", "recall_micro", "f1_micro", "recall_weighted")  # each is top-1 again


def shown_names(values: dict[str, Value]) -> list[str]:
    """The measures there are, in the order to tell them; what only repeats top-1 is left out."""
    return [name for name in MEASURES if name in values and not ("top1" in values and name in SAME_WHERE_ONE_CLASS)]


def number(name: str, value: float | None) -> str:
    """One number of a measure, as people read it."""
    if value is None:
        return "not defined"
    return f"{value:.2%}" if MEASURES[name].share else f"{value:.4f}"


def interval(name: str, value: Value) -> str:
    """Its 95% interval; empty where there is none."""
    if value.low is None or value.high is None:
        return ""
    return f"{number(name, value.low)} to {number(name, value.high)}"
