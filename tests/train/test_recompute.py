"""Does gradient checkpointing give the same bits for less memory?"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from train.tiny import RICH, TINY, fingerprint, run_tiny

import vitrail
from vitrail.train.recompute import recomputed


@pytest.mark.parametrize("changes", [{}, {**RICH, "train.precision": "bf16"}], ids=["fp32", "rich bf16"])
def test_the_bits_are_the_same(changes: dict[str, Any], pictures: Path, tmp_path: Path) -> None:
    run_tiny(pictures, tmp_path / "kept", {**changes, "train.epochs": 2})
    run_tiny(pictures, tmp_path / "again", {**changes, "train.epochs": 2, "train.gradient_checkpointing": True})
    assert fingerprint(tmp_path / "again") == fingerprint(tmp_path / "kept")


def test_low_rank_updates_get_their_gradients_through_it(pictures: Path, tmp_path: Path) -> None:
    lora = {"train.mode": "lora", "train.epochs": 2}
    run_tiny(pictures, tmp_path / "kept", lora)
    run_tiny(pictures, tmp_path / "again", {**lora, "train.gradient_checkpointing": True})
    assert fingerprint(tmp_path / "again") == fingerprint(tmp_path / "kept")


def kept(model: vitrail.VisionTransformer, images: torch.Tensor) -> int:
    """Bytes that a forward pass keeps for the way back."""
    sizes: dict[int, int] = {}

    def count(tensor: torch.Tensor) -> torch.Tensor:
        sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        model(images)
    return sum(sizes.values())


def test_most_of_what_would_be_kept_is_forgotten() -> None:
    shape: dict[str, Any] = {"image_size": 64, "patch_size": 8, "num_hidden_layers": 6}
    model = vitrail.create("Ti/16", num_classes=3, seed=0, **shape).train()
    images = torch.randn(4, 3, 64, 64)
    before = kept(model, images)
    recomputed(model)
    assert kept(model, images) < before / 3


@pytest.mark.chaos  # no fault, but a compiler takes half a minute
def test_a_compiled_run_has_the_curve_of_a_plain_one(pictures: Path, tmp_path: Path) -> None:
    settings = {**TINY, "train.model": "Ti/16", "train.epochs": 2, "train.precision": "fp32", "train.compile": True}
    told = [f"--set={key}={json.dumps(value)}" for key, value in settings.items()]
    # In a process of its own: the types these tests check at run time are not what torch.compile can follow.
    command = [sys.executable, "-m", "vitrail", "train", str(pictures), "--preset=none", "--quiet", *told]
    ended = subprocess.run([*command, "--out", str(tmp_path / "compiled")], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    plain = run_tiny(pictures, tmp_path / "plain", {"train.epochs": 2, "train.precision": "fp32"})
    with (tmp_path / "compiled" / "results.csv").open() as file:
        compiled = list(csv.DictReader(file))
    for one, other in zip(plain.history, compiled, strict=True):
        assert one["train_loss"] == pytest.approx(float(other["train_loss"]), abs=0.05), "its dropout draws otherwise"
