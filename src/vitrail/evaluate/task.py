"""Labelled pictures and a model's labels to what is to be answered, and what would be right."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vitrail.errors import DataError, UsageError, did_you_mean
from vitrail.evaluate.ranking import Flags
from vitrail.images.folder import WHOLE, Dataset, Sample, read_data
from vitrail.images.labels import match_labels

SPLITS = ("val", "test", WHOLE)  # which one is taken where none is asked for


@dataclass(frozen=True)
class Asked:
    """Which pictures, and how their classes become the model's."""

    data: str | os.PathLike[str]
    split: str | None = None
    remap: bool | Mapping[str, str] = False
    labels_split: str = ""

    def read(self) -> tuple[Dataset, str]:
        """The data, and the split that was asked for, or one a model has not been trained on."""
        dataset = read_data(self.data)
        if self.split is not None and self.split not in dataset.splits:
            raise UsageError(
                f"{self.data} has no split {self.split!r}.",
                f"It has {', '.join(dataset.splits)}.",
                did_you_mean(self.split, dataset.splits),
            )
        found = self.split or next((one for one in SPLITS if one in dataset.splits), None)
        if found is None:
            raise DataError(
                f"{self.data} has only a train split.",
                "A val or test split.",
                "--split train, if that is meant.",
            )
        return dataset, found


@dataclass(frozen=True)
class Task:
    """The pictures, the right classes of each label number in the model's numbers, and what is left out."""

    samples: tuple[Sample, ...]
    targets: Flags  # label numbers x classes of the model
    left_out: Mapping[str, int]  # pictures of classes the model does not know
    several: bool  # whether a picture may have several classes


def task_for(dataset: Dataset, split: str, labels: Sequence[str], asked: Asked) -> Task:
    """One split of the data, as a model with these labels is asked about it."""
    if not labels:
        raise UsageError("The model has no classes.", "A model with a classifier.", "Use vitrail embed for features.")
    parts = [tagged(name, asked.labels_split) for name in dataset.classes]
    numbers = numbers_of(sorted({part for several in parts for part in several}), labels, asked.remap)
    targets = np.zeros((len(parts), len(labels)), bool)
    for label, several in enumerate(parts):
        known = [number for part in several if (number := numbers[part]) is not None]
        targets[label, known] = True
    whole = dataset.splits[split]
    # A picture without a right answer cannot be answered rightly; where several are possible, none is one too.
    samples = whole if asked.labels_split else tuple(sample for sample in whole if targets[sample.label].any())
    if not samples:
        raise DataError(f"No picture of {split} is of a class the model knows.", "At least one.", "")
    unknown = Counter(part for sample in whole for part in parts[sample.label] if numbers[part] is None)
    return Task(samples, targets, unknown, bool(asked.labels_split))


def numbers_of(names: Sequence[str], labels: Sequence[str], remap: bool | Mapping[str, str]) -> dict[str, int | None]:
    """The model's number of each class name; None for what it does not know and `remap` lets pass."""
    return dict(zip(names, match_labels(names, labels, remap=remap), strict=True))


def tagged(name: str, separator: str) -> list[str]:
    """The classes a label stands for: itself, or several where labels are lists."""
    parts = [part.strip() for part in name.split(separator)] if separator else [name]
    return [part for part in parts if part]
