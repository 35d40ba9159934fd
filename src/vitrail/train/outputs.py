"""What a run leaves for others: the best and the last weights as native checkpoints, and a list of bad pictures."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Any

from vitrail.checkpoint.atomic import replacing
from vitrail.checkpoint.save import save
from vitrail.images.reading import shown
from vitrail.model.vit import VisionTransformer, build_empty
from vitrail.runs.directory import Run
from vitrail.train.adapters import merged
from vitrail.train.card import card, epoch_scores
from vitrail.train.job import Job
from vitrail.train.state import TrainState


def keep_weights(job: Job, state: TrainState, row: Mapping[str, Any], improved: bool) -> None:
    """weights/last, and weights/best if this epoch is the best so far. Each file is replaced whole."""
    model = as_model(job, state)  # by every process: each may have a part only
    job.world.led(lambda: write_weights(job, model, row, improved))


def write_weights(job: Job, model: VisionTransformer, row: Mapping[str, Any], improved: bool) -> None:
    """Both folders, whole."""
    for name in ("last", "best") if improved else ("last",):
        folder = job.run.weights / name
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(folder / "README.md") as file:
            file.write(card(model.config, model.labels, job.config, job.data, row["epoch"], epoch_scores(row)).encode())
        save(model, folder)


def as_model(job: Job, state: TrainState) -> VisionTransformer:
    """The model with the weights that were evaluated: averaged, adapters merged in."""
    model = build_empty(state.model.config)
    model.load_state_dict(merged(state.model, state.evaluated, job.config), assign=True)
    model.preprocess, model.labels = state.model.preprocess, state.model.labels
    return model.eval()


def write_bad_images(run: Run, bad: Mapping[str, str]) -> None:
    """bad_images.csv: every picture that was left out, and why."""
    if not run.writes:
        return
    text = io.StringIO(newline="")
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["path", "reason"])
    table.writerows(sorted((shown(path), reason) for path, reason in bad.items()))
    with replacing(run.path / "bad_images.csv") as file:
        file.write(text.getvalue().encode("utf-8", "backslashreplace"))
