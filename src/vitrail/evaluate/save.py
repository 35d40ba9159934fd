"""An evaluation as files: a page to look at, and tables for whatever comes next."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from vitrail.checkpoint.atomic import replacing
from vitrail.evaluate.calibration import probabilities
from vitrail.evaluate.charts import alone
from vitrail.evaluate.drawings import drawings
from vitrail.evaluate.evaluate import Evaluation
from vitrail.evaluate.report import page

BEST = 5  # classes per picture in predictions.csv
COLUMNS = ("path", "status", "error", "width", "height", "target", "correct", "label", "index", "probability", "top5")
PER_CLASS = ("label", "pictures", "predicted", "right", "precision", "recall", "f1", "auroc", "average_precision")


def save(evaluation: Evaluation, folder: Path, history: Sequence[Mapping[str, Any]] = ()) -> list[Path]:
    """report.html, metrics.json, the tables and the plots; the paths written. `history` is rows of results.csv."""
    drawn = drawings(evaluation, history)
    contents: dict[str, Iterable[bytes]] = {
        "metrics.json": [encoded(as_data(evaluation)).encode() + b"\n"],
        "predictions.csv": csv_lines(COLUMNS, prediction_rows(evaluation)),
        "per_class.csv": csv_lines(PER_CLASS, class_cells(evaluation)),
        "bad_images.csv": csv_lines(("path", "reason"), ([row.path, row.error] for row in evaluation.bad)),
        "report.html": [page(evaluation, drawn).encode()],
    }
    if not evaluation.answered.several:
        contents["confusion.csv"] = csv_lines(("true", "predicted", "pictures"), confusion_rows(evaluation))
    contents |= {f"plots/{name}.svg": [alone(drawing.svg).encode()] for name, drawing in drawn.items()}
    for name, parts in contents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            file.writelines(parts)
    return [folder / name for name in contents]


def as_data(evaluation: Evaluation) -> dict[str, Any]:
    """Everything but the pictures' own rows, for JSON."""
    return {
        "schema_version": 1,
        **evaluation.about,
        "files": len(evaluation.rows),
        "bad": len(evaluation.bad),
        "left_out": dict(evaluation.left_out),
        "cost": msgspec.to_builtins(evaluation.cost),
        **msgspec.to_builtins(evaluation.metrics),
        "confusion": [
            {"true": true, "predicted": predicted, "pictures": pictures}
            for true, predicted, pictures in confusion_rows(evaluation)
        ],
    }


def encoded(data: Mapping[str, Any]) -> str:
    """JSON text; what is no number becomes null."""
    return msgspec.json.format(msgspec.json.encode(data), indent=1).decode()


def csv_lines(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterable[bytes]:
    """A CSV file, a line at a time."""
    for cells in chain([header], rows):
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerow(cells)  # None becomes an empty cell
        yield text.getvalue().encode("utf-8", "backslashreplace")


def prediction_rows(evaluation: Evaluation) -> Iterable[list[Any]]:
    """One row per file, in order, also for those that cannot be read."""
    answered, yes = evaluation.answered, evaluation.answered.yes
    for row in evaluation.rows:
        if row.place is None:
            yield [row.path, "error", row.error] + [None] * (len(COLUMNS) - 3)
            continue
        truth = answered.truth[row.place]
        chances = probabilities(answered.scores[row.place : row.place + 1], answered.several)[0]
        best = np.argsort(-chances, kind="stable")[:BEST]
        right = bool((yes[row.place] == truth).all())
        top = "; ".join(f"{answered.labels[number]} {chances[number]:.6f}" for number in best)
        target = "|".join(answered.labels[number] for number in np.flatnonzero(truth))
        first = int(best[0])
        size = [row.width, row.height]
        yield [row.path, "ok", "", *size, target, right, answered.labels[first], first, f"{chances[first]:.6f}", top]


def class_cells(evaluation: Evaluation) -> Iterable[list[Any]]:
    """per_class.csv."""
    for row in evaluation.metrics.classes:
        yield [getattr(row, name) for name in PER_CLASS]


def confusion_rows(evaluation: Evaluation) -> Iterable[tuple[str, str, int]]:
    """confusion.csv: the pairs that occur, by name."""
    labels = evaluation.answered.labels
    for true, predicted, pictures in evaluation.metrics.confusion:
        yield labels[true], labels[predicted], pictures
