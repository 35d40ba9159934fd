"""A tiny model that is right about most of some coloured pictures, and those pictures in folders."""

import numpy as np
import pytest
import torch
from PIL import Image

import vitrail
from vitrail.config import ViTConfig
from vitrail.images.loader import batches
from vitrail.images.transforms import normalise
from vitrail.model.vit import create

LABELS = ["blue", "green", "red"]
COLOURS = {"blue": (40, 60, 220), "green": (40, 200, 70), "red": (220, 50, 40)}


def coloured(name, seed):
    """A noisy picture of a colour that is sometimes almost another."""
    random = np.random.default_rng(seed)
    noise = random.normal(0, 90, 3) + random.normal(0, 25, (40, 48, 3))
    return Image.fromarray(np.clip(np.array(COLOURS[name]) + noise, 0, 255).astype(np.uint8))


def put(folder, name, seed):
    path = folder / name / f"{name}-{seed:03}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    coloured(name, seed).save(path)
    return path


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory):
    """Engines compiled by these tests, once; how one is chosen is tested elsewhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VITRAIL_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setattr("vitrail.engines.trial.SAMPLES", 4)
        patch.setattr("vitrail.engines.trial.SECONDS", 0.0)
        yield


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """Thirty pictures of three classes, two of them under a wrong label; and two files that are no pictures."""
    folder = tmp_path_factory.mktemp("data") / "colours"
    for place, name in enumerate(LABELS):
        for seed in range(10):
            put(folder, name, 100 * place + seed)
    coloured("red", 900).save(folder / "blue" / "mislabelled.png")
    (folder / "green" / "broken.jpg").write_bytes(b"\xff\xd8\xff")
    (folder / "red" / "empty.png").touch()
    return folder


@pytest.fixture(scope="session")
def model():
    """A ViT whose head is fitted to its own features of such colours, by least squares with a ridge."""
    config = ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        image_size=32,
        patch_size=16,
        num_classes=3,
    )
    made = create(config, seed=0)
    made.labels = LABELS
    names = [LABELS[seed % 3] for seed in range(60)]
    pictures = [coloured(name, 5000 + seed) for seed, name in enumerate(names)]
    (batch,) = batches(pictures, made.preprocess, batch_size=60)
    with torch.no_grad():
        probe = vitrail.Probe("head.representation")
        made(normalise(batch.pixels, made.preprocess), probe)
        wanted = torch.eye(3)[[LABELS.index(name) for name in names]] - 1 / 3
        features = probe["head.representation"]
        small = features.T @ features + 0.1 * torch.eye(16)  # a ridge: large weights would magnify every rounding
        made.head.classifier.weight.copy_(4 * torch.linalg.solve(small, features.T @ wanted).T)
        made.head.classifier.bias.zero_()
    return made


@pytest.fixture(scope="session")
def checkpoint(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "tiny"
    vitrail.save(model, folder)
    return str(folder)
