"""A tiny model with answers of its own, its checkpoint, its engines' cache, and pictures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import vitrail
from vitrail.config import ViTConfig
from vitrail.model.vit import VisionTransformer, create

LABELS = ["red", "green", "blue", "yellow", "grey", "teal"]


@pytest.fixture(scope="session")
def model() -> VisionTransformer:
    """Six classes, and no weight that is zero."""
    torch.manual_seed(3)
    config = ViTConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        image_size=32,
        patch_size=8,
        num_classes=6,
    )
    made = create(config, seed=0)
    made.labels = LABELS
    with torch.no_grad():
        for parameter in made.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return made


@pytest.fixture(scope="session")
def checkpoint(model: VisionTransformer, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The model on the disk."""
    folder = tmp_path_factory.mktemp("model") / "tiny"
    vitrail.save(model, folder)
    return str(folder)


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Engines compiled by these tests, once."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("VITRAIL_CACHE", str(folder))
        patch.setattr("vitrail.engines.trial.SAMPLES", 4)  # the trial itself is tested elsewhere
        patch.setattr("vitrail.engines.trial.SECONDS", 0.0)
        yield folder


def photo(seed: int, side: int = 40) -> Image.Image:
    """A picture unlike any other."""
    values = np.random.default_rng(seed).integers(0, 256, (4, 4, 3), np.uint8)
    return Image.fromarray(values).resize((side, side), Image.Resampling.BICUBIC)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Twelve pictures in two folders, and two files that are none."""
    folder = tmp_path / "photos"
    for number in range(12):
        path = folder / ("a" if number % 2 else "b") / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        photo(number).save(path)
    (folder / "a" / "broken.jpg").write_bytes(b"\xff\xd8\xff")
    (folder / "b" / "empty.png").touch()
    return folder
