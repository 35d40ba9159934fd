"""The drawings of an evaluation: calibration, ranking, classes, confusion, and the curves of a training run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vitrail.evaluate.charts import Plot, Point, chart, safe, svg
from vitrail.evaluate.evaluate import Evaluation
from vitrail.evaluate.matrix import shown_classes
from vitrail.evaluate.metrics import ClassRow, Metrics
from vitrail.evaluate.ranking import ranked

MOST_BARS = 30
MOST_CURVES = 12  # classes with a curve of their own
POINTS = 200  # of a curve
PERCENT = "{:.0%}".format


@dataclass(frozen=True)
class Drawing:
    """An SVG with what to say about it."""

    title: str
    svg: str
    says: str


def drawings(evaluation: Evaluation, history: Sequence[Mapping[str, Any]] = ()) -> dict[str, Drawing]:
    """Every drawing there is something to draw for, by the name of its file."""
    metrics = evaluation.metrics
    found = {"curves": curves(history)} if history else {}
    if not metrics.pictures:
        return found
    found["reliability"] = reliability(metrics)
    if any(row.auroc is not None for row in metrics.classes):
        found["roc"] = roc(evaluation)
    if len(metrics.classes) > 1:
        found["classes"] = class_bars(metrics.classes)
    if metrics.confusion:
        found["confusion"] = confusion(metrics, evaluation.answered.labels)
    return found


def reliability(metrics: Metrics) -> Drawing:
    """How often answers of each confidence are right, above how many there are."""
    upper = Plot(420, 280, (0, 1), (0, 1))
    upper.axes("confidence", "accuracy", PERCENT, PERCENT)
    most = max(one.answers for one in metrics.bins)
    lower = Plot(420, 130, (0, 1), (0, most * 1.05), top=26)
    lower.axes("confidence", "answers", "{:,.0f}".format, PERCENT)
    for one in metrics.bins:
        if one.answers:
            told = f"{one.answers:,} answers: {one.confidence:.1%} sure, {one.accuracy:.1%} right"
            low, high = sorted((one.accuracy, one.confidence))
            upper.bar((one.low, one.high), (0, low), "right faint", told)
            upper.bar((one.low, one.high), (low, high), "wrong" if high > one.accuracy else "glass", told)
            lower.bar((one.low, one.high), (0, one.answers), "right", told)
    upper.ideal([(0, 0), (1, 1)])
    says = (
        "On the dashed line a model is as often right as it is sure. Red: surer than right; gold: right more often. "
        f"{temperature_says(metrics.temperature)}"
    )
    return Drawing("Calibration", chart([upper, lower], 1, "Calibration: accuracy by confidence"), says)


def temperature_says(temperature: float | None) -> str:
    """What the fitted temperature means."""
    if temperature is None:
        return "There are too few pictures to fit a temperature."
    if abs(temperature - 1) < 0.02:
        return f"The temperature that fits best is {temperature:.2f}: nothing to mend."
    kind = "surer than it is right" if temperature > 1 else "more often right than it is sure"
    return f"The model is {kind}: its logits divided by {temperature:.2f} would fit best."


def roc(evaluation: Evaluation) -> Drawing:
    """Share of a class found against share of the others taken along, for the classes that are ranked worst."""
    rows = [(row.auroc, number) for number, row in enumerate(evaluation.metrics.classes) if row.auroc is not None]
    rows = rows[1:] if len(evaluation.answered.labels) == 2 and not evaluation.answered.several else rows
    plot = Plot(420, 410, (0, 1), (0, 1))
    plot.axes("of the others, taken along", "of the class, found", PERCENT, PERCENT)
    plot.ideal([(0, 0), (1, 1)])
    for area, number in sorted(rows)[:MOST_CURVES]:
        label = evaluation.answered.labels[number]
        plot.line(roc_points(evaluation, number), "right", f"{label}: area {area:.4f}")
    named = f"the {MOST_CURVES} classes that are ranked worst" if len(rows) > MOST_CURVES else "each class"
    says = f"Pictures ranked by the score of one class; a curve for {named}. The area below is the AUROC."
    return Drawing("Ranking", chart([plot], 1, "ROC curves"), says)


def roc_points(evaluation: Evaluation, number: int) -> list[Point]:
    """One curve; runs of equal scores are one step."""
    truth = evaluation.answered.truth[:, number]
    ranking = ranked(evaluation.answered.scores[:, number], truth)
    positive, negative = (counts[0].cumsum() for counts in ranking.counts(np.ones((1, len(truth)))))
    across = np.concatenate([[0.0], negative / negative[-1]])
    up = np.concatenate([[0.0], positive / positive[-1]])
    kept = np.unique(np.linspace(0, len(up) - 1, POINTS).round().astype(int))
    return list(zip(across[kept].tolist(), up[kept].tolist(), strict=True))


def class_bars(classes: Sequence[ClassRow]) -> Drawing:
    """F1 of every class, or of the hardest."""
    measured = sorted((row for row in classes if row.f1 is not None), key=lambda row: row.f1 or 0)
    shown = measured[:MOST_BARS]
    row_height, left, width = 18, 150, 420
    marks = []
    for place, row in enumerate(shown):
        y, value = place * row_height + 4, row.f1 or 0.0
        length = value * (width - left - 52)
        told = f"precision {percent(row.precision)}, recall {percent(row.recall)}, {row.pictures:,} pictures"
        marks.append(
            f'<text class="tick" x="{left - 8}" y="{y + 11}" text-anchor="end">{safe(shortened(row.label))}</text>'
            f'<rect class="right" x="{left}" y="{y}" width="{max(length, 1):.1f}" height="{row_height - 5}">'
            f"<title>{safe(row.label)}: {told}</title></rect>"
            f'<text class="tick" x="{left + length + 6:.1f}" y="{y + 11}">{value:.1%}</text>'
        )
    says = f"The {len(shown)} hardest of {len(classes):,}." if len(shown) < len(classes) else "The hardest first."
    drawn = svg(width, len(shown) * row_height + 8, "".join(marks), "F1 of each class")
    return Drawing("F1 by class", drawn, says)


def confusion(metrics: Metrics, labels: Sequence[str]) -> Drawing:
    """The matrix as a drawing, each row in shares."""
    chosen = shown_classes(metrics.confusion, len(labels))
    counts = {(true, predicted): pictures for true, predicted, pictures in metrics.confusion}
    size, left, top = 26, 130, 110
    marks = []
    for down, row in enumerate(chosen):
        y = top + down * size
        marks.append(f'<text class="tick" x="{left - 8}" y="{y + 17}" text-anchor="end">{safe(shortened(labels[row]))}')
        marks.append(
            f'</text><text class="tick" transform="translate({left + down * size + 17} {top - 8}) rotate(-60)">'
            f"{safe(shortened(labels[row]))}</text>"
        )
        for across, col in enumerate(chosen):
            pictures = counts.get((row, col), 0)
            share, kind = pictures / max(metrics.classes[row].pictures, 1), "right" if row == col else "wrong"
            marks.append(
                f'<rect class="{kind}" fill-opacity="{share:.3f}" x="{left + across * size}" y="{y}" '
                f'width="{size - 1}" height="{size - 1}"><title>{safe(labels[row])} taken for {safe(labels[col])}: '
                f"{pictures}</title></rect>"
            )
    side = len(chosen) * size
    frame = f'<rect class="grid" x="{left - 0.5}" y="{top - 0.5}" width="{side}" height="{side}"/>'
    drawn = svg(left + side + 60, top + side + 8, frame + "".join(marks), "Confusion matrix")
    return Drawing("Confusion", drawn, "Rows are true classes; colour is the share of the row.")


def curves(history: Sequence[Mapping[str, Any]]) -> Drawing:
    """Loss, accuracy and learning rate, epoch by epoch."""
    columns: list[tuple[str, list[tuple[str, str, str]], Callable[[float], str]]] = [
        ("loss", [("train_loss", "training", "glass"), ("val_loss", "validation", "right")], "{:g}".format),
        ("accuracy", [("val_top1", "top-1", "right"), ("val_top5", "top-5", "right dashed")], PERCENT),
        ("learning rate", [("lr", "", "glass")], "{:.0e}".format),
    ]
    plots = [plot for column in columns if (plot := curve(history, *column))]
    return Drawing(
        "Loss, accuracy, learning rate", chart(plots, 3, "Curves of training"), "Every epoch of the run (results.csv)."
    )


def curve(
    history: Sequence[Mapping[str, Any]],
    name: str,
    lines: Sequence[tuple[str, str, str]],
    said: Callable[[float], str],
) -> Plot | None:
    """One plot over epochs, of the columns that have numbers."""
    points = {
        column: [(float(row["epoch"]), float(row[column])) for row in history if row.get(column) not in (None, "")]
        for column, _, _ in lines
    }
    values = [value for line in points.values() for _, value in line]
    if not values:
        return None
    low, high = min(0.0, *values), max(values) * 1.05
    last = max(float(row["epoch"]) for row in history)
    plot = Plot(320, 220, (0.0, max(last, 1.0)), (low, max(high, low + 1e-12)))
    plot.axes("epoch", name, said)
    for column, _, kind in lines:
        plot.line(points[column], kind)
    plot.key((words, kind) for column, words, kind in lines if words and points[column])
    return plot


def percent(value: float | None) -> str:
    """A share, where there is one."""
    return "not defined" if value is None else f"{value:.1%}"


def shortened(text: str, most: int = 22) -> str:
    """Text that fits beside a bar; the whole of it is in the words for the pointer."""
    return text if len(text) <= most else text[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"
