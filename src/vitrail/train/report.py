"""The end of a run: what `evaluate` says of the best weights, with the run's curves, and a model card that tells it.

Everything is read from the run directory, so the report of a run can be made again at any time.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from vitrail.bulk.running import Running
from vitrail.bulk.settings import EngineConfig, PictureConfig
from vitrail.checkpoint.atomic import replacing
from vitrail.engines.base import Engine
from vitrail.evaluate.answering import Told
from vitrail.evaluate.evaluate import Evaluation, judge
from vitrail.evaluate.measures import MEASURES, interval, number, shown_names
from vitrail.evaluate.save import csv_lines, save
from vitrail.evaluate.task import Task
from vitrail.runs.directory import open_run, read_record
from vitrail.train.card import Score, card
from vitrail.train.config import DataConfig, TrainConfig
from vitrail.train.data import TrainingData, read_training_data, with_classes_of
from vitrail.train.settings import read_config

BATCH = 32
HUB_NAMES = {"top1": "accuracy", "f1_macro": "f1", "precision_macro": "precision", "recall_macro": "recall"}


def report(run: Path, told: Told | None = None) -> Evaluation:
    """report.html, its plots and tables in a run directory, and the card in weights/best; of validation pictures."""
    settings = read_config(open_run(run).config)
    train, where = settings.records["train"], settings.records["data"]
    assert isinstance(train, TrainConfig)
    assert isinstance(where, DataConfig)
    pictures = PictureConfig(workers=max(where.workers, 0), depth=where.depth, background=where.background)
    engine = Running(run, engine=EngineConfig(batch_size=BATCH), pictures=pictures).open()
    data = with_classes_of(read_training_data(where, train), engine.card.labels)
    found = judge(engine, task_of(data, where), pictures, about=about(run, data), told=told)
    bad = read_table(run / "bad_images.csv")  # what training found is not lost
    save(found, run, history(run))
    write_bad(run, [*bad, *({"path": row.path, "reason": row.error} for row in found.bad)])
    write_card(run, engine, train, data, found)
    return found


def task_of(data: TrainingData, where: DataConfig) -> Task:
    """The pictures the best weights were chosen by; without any, those they were trained on."""
    targets = data.rows.numpy() > 0
    return Task(data.val or data.train, targets, {}, several=bool(where.labels_split))


def about(run: Path, data: TrainingData) -> dict[str, Any]:
    """What the page says of the run."""
    warnings = [] if data.val else ["These are the pictures it was trained on: on others, expect less."]
    return {
        "model": str(run),
        "data": data.root,
        "split": "validation pictures" if data.val else "training pictures",
        "skipped": data.skipped,
        "fingerprint": data.fingerprint,
        "warnings": warnings,
    }


def history(run: Path) -> list[dict[str, Any]]:
    """The rows of results.csv as numbers; an empty cell is none."""
    rows = read_table(run / "results.csv")
    return [{name: float(cell) if cell else None for name, cell in row.items()} for row in rows]


def read_table(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file; none where there is no file."""
    if not path.is_file():
        return []
    return list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"), newline="")))


def write_bad(run: Path, rows: list[dict[str, str]]) -> None:
    """bad_images.csv: what could not be read in training or now, each file once."""
    reasons = {row["path"]: row["reason"] for row in rows}
    with replacing(run / "bad_images.csv") as file:
        file.writelines(csv_lines(("path", "reason"), sorted(reasons.items())))


def write_card(run: Path, engine: Engine, train: TrainConfig, data: TrainingData, found: Evaluation) -> None:
    """README.md of the best weights, with every measure."""
    best = run / "weights" / "best"
    if not best.is_dir():
        return
    scores = [score_of(name, found) for name in shown_names(found.metrics.values)]
    epoch = read_record(open_run(run)).get("best", {}).get("epoch", len(history(run)))
    with replacing(best / "README.md") as file:
        file.write(card(engine.card.config, engine.card.labels, train, data, epoch, scores).encode())


def score_of(name: str, found: Evaluation) -> Score:
    """One measure as a line of the card."""
    value = found.metrics.values[name]
    shown = number(name, value.value), interval(name, value)
    hub = HUB_NAMES.get(name, "") if value.value is not None else ""
    return Score(MEASURES[name].title, *shown, hub, value.value or 0.0)
