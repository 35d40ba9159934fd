"""What a frozen model sees in every picture: computed once by the fastest engine, kept in the run's folder.

A linear probe learns from these rows instead of pictures, so an epoch takes seconds whatever the model. They are
committed like a checkpoint, because a run that goes on has to meet the same bits.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from vitrail.bulk.running import Running
from vitrail.bulk.settings import EngineConfig, PictureConfig
from vitrail.bulk.stream import stream
from vitrail.checkpoint import container
from vitrail.config import replace
from vitrail.engines.base import Engine
from vitrail.errors import CheckpointError, ConfigError
from vitrail.images.folder import Sample
from vitrail.model.vit import VisionTransformer, build_empty
from vitrail.runs import commit
from vitrail.train.adapters import CLASSIFIER
from vitrail.train.config import DataConfig, TrainConfig
from vitrail.train.data import TrainingData
from vitrail.train.memory import features_width

Told = Callable[[int, int], None]
ROWS, BAD = "features.safetensors", "bad.json"
BATCH = 32


@dataclass(frozen=True)
class Features:
    """A row for every picture of both splits, in their order; zeros where a picture cannot be read."""

    train: Tensor
    val: Tensor
    bad: dict[str, dict[int, str]]  # split -> number of the picture -> why

    def reasons(self, data: TrainingData) -> list[tuple[str, str]]:
        """Every picture that cannot be read, by name."""
        named = (("train", data.train), ("val", data.val))
        return [(str(samples[i].item), why) for split, samples in named for i, why in self.bad[split].items()]


def features_of(model: VisionTransformer, data: TrainingData, where: DataConfig, folder: Path, told: Told) -> None:
    """Have the features of this data in a folder: those that are there, if they are whole, or new ones."""
    chosen, damaged = commit.newest(folder) if folder.is_dir() else (None, [])
    if folder.is_dir():
        chosen = commit.tidy(folder, chosen, damaged)
    if chosen is not None:
        return
    folder.mkdir(exist_ok=True)
    pictures = PictureConfig(workers=max(where.workers, 0), depth=where.depth, background=where.background)
    engine = Running(handing_on(model), engine=EngineConfig(batch_size=BATCH), pictures=pictures).open()
    total = len(data.train) + len(data.val)
    rows = {"train": answers(engine, data.train, pictures, lambda done: told(done, total))}
    rows["val"] = answers(engine, data.val, pictures, lambda done: told(len(data.train) + done, total))
    size = sum(tensor.nbytes for tensor, _ in rows.values()) + 2**16
    commit.commit(folder, 0, size, partial(write, rows), keep=1)


def handing_on(model: VisionTransformer) -> VisionTransformer:
    """The same model with a classifier that hands on what it is given: its answers are the features."""
    refuse_two_classifiers(model)
    width = features_width(model)
    result = build_empty(replace(model.config, num_classes=width))
    state = {name: tensor.detach() for name, tensor in model.state_dict().items() if not name.startswith(CLASSIFIER)}
    state |= {f"{CLASSIFIER}weight": torch.eye(width), f"{CLASSIFIER}bias": torch.zeros(width)}
    result.load_state_dict({name: tensor.cpu() for name, tensor in state.items()}, assign=True)
    result.preprocess = model.preprocess
    return result.eval()


def refuse_two_classifiers(model: VisionTransformer) -> None:
    """Distilled models have two; a probe has one."""
    if model.head.classifier_distilled is not None:
        raise ConfigError(
            "The model has two classifiers (it was distilled).", "One, for train.mode=probe.", "Use head."
        )


def answers(
    engine: Engine, samples: Sequence[Sample], pictures: PictureConfig, told: Callable[[int], None]
) -> tuple[Tensor, dict[int, str]]:
    """The rows of some pictures, and why some have none."""
    rows = torch.zeros(len(samples), len(engine.card.labels))
    bad: dict[int, str] = {}
    done = 0
    for batch, outputs in stream(engine, [sample.item for sample in samples], pictures):
        if outputs.logits is not None:
            rows[[file.index for file in batch.good]] = torch.from_numpy(outputs.logits)
        bad |= {file.index: file.error.row for file in batch.files if file.error}
        done += len(batch.files)
        told(done)
    return rows, bad


def write(rows: dict[str, tuple[Tensor, dict[int, str]]], folder: Path) -> None:
    """Into an empty folder, for commit.py."""
    container.write_safetensors(folder / ROWS, {split: tensor for split, (tensor, _) in rows.items()})
    bad = {split: {str(index): why for index, why in found.items()} for split, (_, found) in rows.items()}
    (folder / BAD).write_text(json.dumps(bad), encoding="utf-8")


def read(folder: Path) -> Features:
    """What `features_of` put there."""
    chosen, _ = commit.newest(folder)
    if chosen is None:
        raise CheckpointError(f"{folder} has no features that are as they were written.", "", "Resume the run.")
    rows = container.read(chosen.path / ROWS).tensors
    bad = json.loads((chosen.path / BAD).read_text(encoding="utf-8"))
    found = {split: {int(index): why for index, why in reasons.items()} for split, reasons in bad.items()}
    return Features(rows["train"], rows["val"], found)


def refuse_mixing(config: TrainConfig) -> None:
    """Features are of whole pictures."""
    if config.mode == "probe" and config.mixes:
        raise ConfigError(
            "train.mode is probe, but pictures are to be mixed (train.mixup, train.cutmix).",
            "A probe sees each picture once, as in evaluation.",
            "Leave the mixing out, or use train.mode=head.",
        )
