"""Small pictures, a small model, and runs of it that take a fraction of a second."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from vitrail.runs import commit
from vitrail.train import shards
from vitrail.train.distributed import ALONE
from vitrail.train.run import TrainResult, train
from vitrail.train.state import TENSORS

TINY: dict[str, Any] = {
    "model.image_size": 16,
    "model.patch_size": 8,
    "model.hidden_size": 32,
    "model.num_hidden_layers": 2,
    "model.num_attention_heads": 2,
    "model.intermediate_size": 48,
    "model.hidden_dropout_prob": 0.1,
    "model.drop_path_rate": 0.2,
    "train.epochs": 3,
    "train.batch_size": 12,
    "train.lr": 2e-3,
    "train.checkpoint_minutes": 0.0,
    "train.report": False,
    "data.workers": 0,
    "data.val_share": 0.2,
}
RICH: dict[str, Any] = {
    "train.micro_batch": 5,  # 12 in portions of 5, 5 and 2
    "train.mixup": 0.4,
    "train.cutmix": 1.0,
    "train.ema": 0.9,
    "train.label_smoothing": 0.1,
    "train.layer_decay": 0.8,
    "train.checkpoint_every": 2,
    "augment.policy": "randaugment",
    "augment.erase": 0.3,
}


def make_pictures(root: Path, count: int = 20, classes: int = 3, size: int = 20) -> Path:
    """Stripes across, down or aslant, in noise."""
    for label in range(classes):
        folder = root / f"class {label}"
        folder.mkdir(parents=True)
        for index in range(count):
            draw = np.random.RandomState(1000 * label + index)
            y, x = np.mgrid[:size, :size]
            wave = np.sin((x, y, x + y, x - y)[label % 4] / 2 + draw.uniform(0, 6))
            array = 128 + 80 * wave[..., None] + draw.normal(0, 25, (size, size, 3))
            Image.fromarray(array.clip(0, 255).astype(np.uint8)).save(folder / f"{index}.png")
    return root


def run_tiny(data: Path, out: Path, changes: Mapping[str, Any] | None = None) -> TrainResult:
    """A whole run."""
    return train(data, "Ti/16", out=out, preset="none", settings={**TINY, **(changes or {})}, quiet=True)


def fingerprint(run: Path) -> dict[str, str]:
    """What two runs that did the same have in common: the final state, both weights, and the results but for times."""
    checkpoint, _ = commit.newest(run / "checkpoints")
    assert checkpoint is not None
    files = {name: run / "weights" / name / "model.safetensors" for name in ("last", "best")}
    hashes = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}
    with (run / "results.csv").open() as file:
        rows = [
            {k: v for k, v in row.items() if k not in ("seconds", "images_per_second")} for row in csv.DictReader(file)
        ]
    return hashes | {"state": state_hash(checkpoint.path), "results": repr(rows)}


def state_hash(folder: Path) -> str:
    """Of one file, its bytes; of shards, whose place in their files is torch's business, the tensors."""
    if (folder / TENSORS).is_file():
        return hashlib.sha256((folder / TENSORS).read_bytes()).hexdigest()
    digest = hashlib.sha256()
    for name, tensor in sorted(shards.read(folder, {}, ALONE).items()):
        digest.update(name.encode() + tensor.numpy().tobytes())
    return digest.hexdigest()
