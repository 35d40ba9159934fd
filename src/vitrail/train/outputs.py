"""What a run leaves for others: the best and the last weights as native checkpoints, and a list of bad pictures."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Any

from vitrail.checkpoint.atomic import replacing
from vitrail.checkpoint.save import save
from vitrail.model.vit import VisionTransformer, build_empty
from vitrail.runs.directory import Run
from vitrail.train.adapters import merged
from vitrail.train.job import Job
from vitrail.train.state import TrainState


def keep_weights(job: Job, state: TrainState, row: Mapping[str, Any], improved: bool) -> None:
    """weights/last, and weights/best if this epoch is the best so far. Each file is replaced whole."""
    model = as_model(job, state)
    for name in ("last", "best") if improved else ("last",):
        folder = job.run.weights / name
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(folder / "README.md") as file:
            file.write(model_card(job, model, row).encode())
        save(model, folder)


def as_model(job: Job, state: TrainState) -> VisionTransformer:
    """The model with the weights that were evaluated: averaged, adapters merged in."""
    model = build_empty(state.model.config)
    model.load_state_dict(merged(state.model, state.evaluated, job.config), assign=True)
    model.preprocess, model.labels = state.model.preprocess, state.model.labels
    return model.eval()


def model_card(job: Job, model: VisionTransformer, row: Mapping[str, Any]) -> str:
    """README.md of a trained model: how good it is, what it was trained on, and how to make it again."""
    config = model.config
    scores = {"val_top1": "top-1", "val_top5": "top-5", "val_loss": "loss", "train_loss": "training loss"}
    shown = ", ".join(model.labels[:10]) + (", ..." if len(model.labels) > 10 else "")
    lines = [
        "---",
        "library_name: vitrail",
        "tags: [vision-transformer, image-classification]",
        "---",
        "",
        "# Vision Transformer",
        "",
        f"{config.hidden_size} wide, {config.num_hidden_layers} blocks, {config.num_attention_heads} heads, "
        f"{'a convolutional stem, ' if config.resnet else ''}pictures of {config.image_size[0]} x "
        f"{config.image_size[1]}. {len(model.labels)} classes: {shown}.",
        "",
        f"After epoch {row['epoch']} of {job.config.epochs}, on {len(job.data.val):,} validation pictures "
        f"(trained on {len(job.data.train):,}; data fingerprint `{job.data.fingerprint}`):",
        "",
        "| | |",
        "|---|---|",
        *(f"| {name} | {row[key]:.4f} |" for key, name in scores.items() if row.get(key) is not None),
        "",
        "Made again by `vitrail train --config config.toml` with the config.toml of its run directory.",
        "",
    ]
    return "\n".join(lines)


def write_bad_images(run: Run, bad: Mapping[str, str]) -> None:
    """bad_images.csv: every picture that was left out, and why."""
    text = io.StringIO(newline="")
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["path", "reason"])
    table.writerows(sorted(bad.items()))
    with replacing(run.path / "bad_images.csv") as file:
        file.write(text.getvalue().encode("utf-8", "backslashreplace"))
