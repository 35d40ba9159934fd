"""DATA to what a run trains and validates on: pictures, targets, and a fingerprint that notices a change."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from vitrail.errors import ConfigError, DataError
from vitrail.images.folder import WHOLE, Dataset, Sample, read_data
from vitrail.images.labels import match_labels
from vitrail.train.config import DataConfig, TrainConfig


@dataclass(frozen=True)
class TrainingData:
    """Labelled pictures, and a row of targets (0 or 1 per class) for every label number."""

    root: str
    classes: tuple[str, ...]
    train: tuple[Sample, ...]
    val: tuple[Sample, ...]
    rows: Tensor  # label numbers x classes
    skipped: dict[str, int]

    @property
    def fingerprint(self) -> str:
        """A hash of every name, label and class: pictures added, removed or moved since change it."""
        digest = hashlib.sha256(repr(self.classes).encode())
        for split in (self.train, self.val):
            for sample in split:
                digest.update(f"\0{relative(sample, self.root)}\0{sample.label}".encode("utf-8", "backslashreplace"))
            digest.update(b"\1")
        return digest.hexdigest()[:32]

    def counts(self) -> Tensor:
        """Training pictures per class."""
        numbers = torch.tensor([sample.label for sample in self.train])
        return self.rows[numbers].sum(0)


def read_training_data(config: DataConfig, train: TrainConfig) -> TrainingData:
    """The pictures at `config.path`, split for training and validation."""
    if not config.path:
        raise ConfigError(
            "No DATA was given.",
            "A folder of class folders, a manifest or tar shards.",
            "vitrail train FOLDER, or --resume RUN; `vitrail demo` shows a whole run.",
        )
    if config.labels_split and train.loss != "bce":
        raise ConfigError(
            f"data.labels_split is {config.labels_split!r}, but train.loss is {train.loss!r}.",
            "Several labels per picture need one yes-or-no per class.",
            "Set train.loss=bce.",
        )
    dataset = read_data(config.path)
    training, validation = split(dataset, config)
    if not training:
        raise DataError(f"{config.path} has nothing to train on.", "A train split, or no splits at all.", "")
    classes, rows = targets(dataset.classes, config.labels_split)
    return TrainingData(os.fspath(Path(config.path)), classes, training, validation, rows, dataset.skipped)


def split(dataset: Dataset, config: DataConfig) -> tuple[tuple[Sample, ...], tuple[Sample, ...]]:
    """Training and validation pictures: the data's own splits, or a share of every class held out by name.

    By name, not by place, so that a picture stays on its side when others are added. A test split is left alone.
    """
    training = dataset.splits.get("train", dataset.splits.get(WHOLE, ()))
    if "val" in dataset.splits or not config.val_share:
        return training, dataset.splits.get("val", ())
    held = held_out(training, config)
    return tuple(s for s in training if s not in held), tuple(s for s in training if s in held)


def held_out(samples: Sequence[Sample], config: DataConfig) -> set[Sample]:
    """The pictures of each class whose hashed names are smallest; a class keeps at least one picture to train on."""
    by_label: dict[int, list[Sample]] = {}
    for sample in samples:
        by_label.setdefault(sample.label, []).append(sample)
    held: set[Sample] = set()
    for group in by_label.values():
        count = min(round(len(group) * config.val_share), len(group) - 1)
        held.update(sorted(group, key=lambda sample: name_hash(sample, config.path))[:count])
    return held


def name_hash(sample: Sample, root: str) -> bytes:
    """A hash of where a picture lies below the data's root."""
    return hashlib.blake2b(relative(sample, root).encode("utf-8", "backslashreplace"), digest_size=8).digest()


def relative(sample: Sample, root: str) -> str:
    """A picture's name as seen from the data's root, the same on every machine."""
    name = str(sample.item)
    folder = root if Path(root).is_dir() else os.path.dirname(root)  # noqa: PTH120 (called once per picture)
    return name.removeprefix(folder).lstrip("/\\").replace("\\", "/")


def targets(names: Sequence[str], separator: str) -> tuple[tuple[str, ...], Tensor]:
    """Class names, and which of them each label of the data stands for: one, or several where labels are lists."""
    parts = [[part.strip() for part in name.split(separator)] if separator else [name] for name in names]
    classes = tuple(sorted({part for several in parts for part in several if part}))
    rows = np.array([[name in several for name in classes] for several in parts], np.float32)
    return classes, torch.from_numpy(rows.reshape(len(names), len(classes)))


def with_classes_of(data: TrainingData, labels: Sequence[str]) -> TrainingData:
    """The data with the class numbers of a model that already knows these names."""
    numbers = match_labels(data.classes, labels)
    rows = torch.zeros(len(data.rows), len(labels))
    for old, new in enumerate(numbers):
        assert new is not None  # match_labels leaves a class out only when it may remap
        rows[:, new] = data.rows[:, old]
    return TrainingData(data.root, tuple(labels), data.train, data.val, rows, data.skipped)
