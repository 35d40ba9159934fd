"""What a practitioner would set: by where the weights start, how many pictures there are, and how large they are.

A preset is the weakest layer of the settings: whatever is set anywhere else wins.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from vitrail.checkpoint.place import DEMO, DEMO_MODEL, names_a_checkpoint
from vitrail.errors import UsageError, did_you_mean
from vitrail.images.decode import decode
from vitrail.images.reading import BadPicture
from vitrail.settings import Layer
from vitrail.train.data import TrainingData

Preset = Literal["quick", "balanced", "best", "none"]
Start = Literal["trained", "fresh"]
PRESETS: tuple[Preset, ...] = ("quick", "balanced", "best", "none")

# By preset and start. Fine-tuning: layer-wise decay and few epochs (2106.08254 and Google's own recipe); fresh weights
# need ten times the steps, and the augmentation of DeiT (2012.12877) once they see each picture often.
FRESH = {"train.lr": 1e-3, "train.weight_decay": 0.05, "augment.crop_scale": (0.5, 1.0)}
TRAINED = {"train.lr": 5e-4, "train.layer_decay": 0.75, "augment.crop_scale": (0.6, 1.0)}
STRONG = {"augment.policy": "randaugment", "train.label_smoothing": 0.1, "model.drop_path_rate": 0.1}
MIXED = {"train.mixup": 0.2, "train.cutmix": 1.0, "train.mix_chance": 0.5, "train.ema": 0.999, "augment.erase": 0.25}
VALUES: dict[tuple[Preset, Start], dict[str, Any]] = {
    ("quick", "trained"): {"train.mode": "probe", "train.lr": 1e-2, "train.weight_decay": 0.0, "train.warmup": 0.0},
    ("balanced", "trained"): TRAINED | {"train.label_smoothing": 0.1},
    ("best", "trained"): TRAINED | STRONG | {"train.mixup": 0.2, "train.mix_chance": 0.5, "train.ema": 0.999},
    ("quick", "fresh"): FRESH,
    ("balanced", "fresh"): FRESH | {"train.label_smoothing": 0.1, "augment.policy": "trivial"},
    ("best", "fresh"): FRESH | STRONG | MIXED,
}
# steps to aim at, fewest and most epochs
LENGTH: dict[tuple[Preset, Start], tuple[int, int, int]] = {
    ("quick", "trained"): (1_000, 20, 50),
    ("balanced", "trained"): (1_000, 5, 40),
    ("best", "trained"): (4_000, 10, 100),
    ("quick", "fresh"): (1_000, 5, 40),
    ("balanced", "fresh"): (4_000, 20, 150),
    ("best", "fresh"): (20_000, 50, 400),
}
LARGEST = {"quick": 64, "balanced": 128, "best": 224}  # pixels of a fresh model that nobody named
BLOCKS = {"quick": 6, "balanced": 8, "best": 12}
SMALL = 48  # pictures below so many pixels are not worth a model made for larger ones
LOOKED_AT = 32


@dataclass(frozen=True)
class Advice:
    """A preset's values, and what to say about them."""

    layer: Layer
    notes: tuple[str, ...] = ()


def advised(preset: Preset, layers: Sequence[Layer], data: TrainingData) -> Advice:
    """What to set beneath everything that was asked for."""
    if preset not in PRESETS:
        raise UsageError(f"There is no preset {preset!r}.", did_you_mean(preset, PRESETS), "")
    asked = {key: value for layer in layers for key, value in layer.values.items()}
    model = asked.get("train.model", "")
    if model and preset == "none":
        return Advice(Layer("default", {}))
    side = usual_side(data)
    values: dict[str, Any] = {} if preset == "none" else dict(VALUES[preset, start_of(model or default_start(side))])
    notes: list[str] = []
    if not model:
        model, shape, why = start(preset, side)
        values |= {"train.model": model, **{key: value for key, value in shape.items() if "model.resnet" not in asked}}
        notes.append(why)
    if preset != "none":
        values |= length(preset, start_of(model), len(data.train), asked)
        notes.append(said(preset, {key: value for key, value in values.items() if key not in asked}))
    return Advice(Layer(f"preset {preset}" if preset != "none" else "default", values), tuple(notes))


def start_of(model: str) -> Start:
    """Whether weights come from a checkpoint."""
    return "trained" if names_a_checkpoint(model) else "fresh"


def default_start(side: int) -> str:
    """The model that is at hand, where the pictures are of its kind."""
    return DEMO if DEMO_MODEL.is_dir() and side >= SMALL else "Ti/16"


def start(preset: Preset, side: int) -> tuple[str, dict[str, Any], str]:
    """A model where none was named, its shape, and why this one."""
    if default_start(side) == DEMO:
        return DEMO, {}, "model: demo, the small one that comes with vitrail; a larger one is --model PATH or hf:NAME"
    if preset == "none":
        return "Ti/16", {}, "model: Ti/16 with fresh weights; a trained one is --model PATH or hf:NAME"
    image, patch = shape(min(side, LARGEST[preset]))
    fields = {
        "model.image_size": (image, image),
        "model.patch_size": (patch, patch),
        "model.num_hidden_layers": BLOCKS[preset],
    }
    why = (
        f"model: fresh weights, Ti wide, {BLOCKS[preset]} blocks, pictures of {image} x {image}, patches of {patch} x "
        f"{patch}, since the pictures are about {side} pixels and no model was named; a trained one learns more from "
        "few pictures: --model PATH or hf:NAME"
    )
    return "Ti/16", fields, why


def shape(side: int) -> tuple[int, int]:
    """A size near a side, and a patch that cuts it into at most 14 rows."""
    patch = next(size for size in (2, 4, 8, 16) if side / size <= 14 or size == 16)
    return max(round(side / patch), 1) * patch, patch


def length(preset: Preset, start: Start, pictures: int, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Batch size and epochs for so many pictures."""
    steps, fewest, most = LENGTH[preset, start]
    batch = asked.get("train.batch_size", batch_for(pictures, 64 if start == "trained" else 128))
    return {"train.batch_size": batch, "train.epochs": min(max(round(steps * batch / pictures), fewest), most)}


def batch_for(pictures: int, most: int) -> int:
    """A power of two that makes about fifty steps of an epoch."""
    batch = 8
    while batch * 2 <= min(pictures / 50, most):
        batch *= 2
    return batch


def usual_side(data: TrainingData) -> int:
    """The median shorter side of a few pictures; 224 where none can be read, which training will then say."""
    sides = []
    for sample in data.train[:: max(1, len(data.train) // LOOKED_AT)][:LOOKED_AT]:
        with suppress(BadPicture):
            picture = decode(sample.item)
            sides.append(min(picture.width, picture.height))
    return int(statistics.median(sides)) if sides else 224


def said(preset: Preset, values: Mapping[str, Any]) -> str:
    """What a preset sets, in one line."""
    shown = {key.removeprefix("train."): value for key, value in values.items() if not key.startswith("model.")}
    shown.pop("model", None)
    return f"preset {preset}: " + ", ".join(f"{key} {spelled(value)}" for key, value in shown.items())


def spelled(value: Any) -> str:
    """0.5-1 for a range."""
    return "-".join(f"{part:g}" for part in value) if isinstance(value, tuple) else f"{value}"
