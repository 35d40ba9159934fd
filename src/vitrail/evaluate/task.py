"""Labelled pictures and a model's labels to what is to be answered, and what would be right."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vitrail.errors import DataError, UsageError
from vitrail.evaluate.ranking import Flags
from vitrail.images.folder import WHOLE, Dataset, Sample
from vitrail.images.labels import match_labels

SPLITS = ("val", "test", WHOLE)  # which one is taken where none is asked for


@dataclass(frozen=True)
class Task:
    """The pictures, the right classes of each label number in the model's numbers, and what is left out."""

    samples: tuple[Sample, ...]
    targets: Flags  # label numbers x classes of the model
    left_out: dict[str, int]  # pictures of classes the model does not know
    several: bool  # whether a picture may have several classes


def make_task(
    dataset: Dataset,
    split: str,
    labels: Sequence[str],
    *,
    remap: bool | Mapping[str, str] = False,
    labels_split: str = "",
) -> Task:
    """One split of the data, as a model with these labels is asked about it."""
    if not labels:
        raise UsageError("The model has no classes.", "A model with a classifier.", "Use vitrail embed for features.")
    parts = [tagged(name, labels_split) for name in dataset.classes]
    names = sorted({part for several in parts for part in several})
    numbers = dict(zip(names, match_labels(names, labels, remap=remap), strict=True))
    targets = np.zeros((len(parts), len(labels)), bool)
    for label, several in enumerate(parts):
        known = [number for part in several if (number := numbers[part]) is not None]
        targets[label, known] = True
    samples = dataset.splits[split]
    if not labels_split:  # a picture without a right answer cannot be answered rightly; without any tag it can
        samples = tuple(sample for sample in samples if targets[sample.label].any())
    if not samples:
        raise DataError(f"No picture of {split} is of a class the model knows.", "At least one.", "")
    unknown = {name: 0 for name in names if numbers[name] is None}
    for sample in dataset.splits[split]:
        for name in parts[sample.label]:
            if name in unknown:
                unknown[name] += 1
    return Task(samples, targets, unknown, bool(labels_split))


def tagged(name: str, separator: str) -> list[str]:
    """The classes a label stands for: itself, or several where labels are lists."""
    parts = [part.strip() for part in name.split(separator)] if separator else [name]
    return [part for part in parts if part]


def chosen_split(dataset: Dataset, split: str | None, data: str | os.PathLike[str]) -> str:
    """The split that was asked for, or one a model has not been trained on."""
    if split is not None and split not in dataset.splits:
        raise UsageError(f"{data} has no split {split!r}.", f"One of {', '.join(dataset.splits)}.", "")
    found = split or next((one for one in SPLITS if one in dataset.splits), None)
    if found is None:
        raise DataError(
            f"{data} has only a train split.", "A val or test split.", "Use --split train if that is what is meant."
        )
    return found
