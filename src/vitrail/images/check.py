"""What is wrong with a data set, found before it is learnt: `vitrail data check DATA`.

Every picture is read once. The answer is one record; nothing is changed, moved or deleted.
"""

from __future__ import annotations

import hashlib
import math
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from unicodedata import normalize

import numpy as np
from PIL import Image

from vitrail.config import Frozen
from vitrail.images.decode import Decoding, Picture, decode
from vitrail.images.folder import Dataset
from vitrail.images.listing import Item
from vitrail.images.loader import in_order
from vitrail.images.reading import BadPicture, read_file, shown
from vitrail.images.shards import Member
from vitrail.images.similar import SIDE, fingerprint, near_groups, thumbnail

FAR = 5.0  # robust standard deviations from the median that make an outlier
LEAST_SPREAD = {"pixels": 0.25, "shape": 0.1, "brightness": 5.0}  # where all are alike, any difference is not yet far
QUICK = Decoding(scaled=True)  # for a fingerprint and a mean, a fraction of a JPEG is plenty


class Unreadable(Frozen, frozen=True, kw_only=True):
    """A file that no verb can use, and why."""

    path: str
    reason: str
    found: str


class Group(Frozen, frozen=True, kw_only=True):
    """Files that are the same, byte for byte (`exact`) or to look at (`near`)."""

    kind: str
    paths: tuple[str, ...]
    splits: tuple[str, ...]  # more than one: the test set is not unseen
    classes: tuple[str, ...]  # more than one: some label is wrong


class Outlier(Frozen, frozen=True, kw_only=True):
    """A picture far from the others in one respect."""

    path: str
    kind: str  # pixels | shape (width by height) | brightness (0 to 255) | blank
    value: float
    median: float


class DataReport(Frozen, frozen=True, kw_only=True):
    """Everything `vitrail data check` found."""

    schema_version: int = 1
    pictures: int
    classes: dict[str, dict[str, int]]  # pictures per class and split
    skipped: dict[str, int]
    formats: dict[str, int]
    notes: dict[str, int]  # first_frame, truncated, profile_ignored ...
    unreadable: tuple[Unreadable, ...]
    duplicates: tuple[Group, ...]
    outliers: tuple[Outlier, ...]
    alike_names: tuple[tuple[str, ...], ...]  # class names that look the same

    @property
    def leaks(self) -> tuple[Group, ...]:
        """The same picture in two splits."""
        return tuple(group for group in self.duplicates if len(group.splits) > 1)

    @property
    def contradictions(self) -> tuple[Group, ...]:
        """The same picture in two classes."""
        return tuple(group for group in self.duplicates if len(group.classes) > 1)


@dataclass(frozen=True, slots=True)
class Seen:
    """One picture of the set, and what reading it told."""

    path: str
    split: str
    label: str
    digest: bytes = b""
    look: int | None = None
    brightness: float = math.nan
    width: int = 0
    height: int = 0
    format: str = ""
    notes: tuple[str, ...] = ()
    error: BadPicture | None = None


def check(
    data: Dataset,
    *,
    channels: int = 3,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> DataReport:
    """Read every picture and report; `progress` is told how many of how many are done."""
    listed = [
        (split, data.classes[sample.label], sample.item) for split, samples in data.splits.items() for sample in samples
    ]
    seen: list[Seen] = []
    for one in in_order(partial(_look, channels=channels), listed, workers=workers):
        seen.append(one)
        if progress:
            progress(len(seen), len(listed))
    good = [one for one in seen if not one.error]
    return DataReport(
        pictures=len(seen),
        classes=data.counts(),
        skipped=data.skipped,
        formats=dict(Counter(one.format for one in good).most_common()),
        notes=dict(Counter(note for one in good for note in one.notes if note != "scaled")),
        unreadable=tuple(
            Unreadable(path=one.path, reason=one.error.reason, found=one.error.found) for one in seen if one.error
        ),
        duplicates=(*_exact(good), *_near(good)),
        outliers=tuple(_outliers(good)),
        alike_names=_alike(data.classes),
    )


def _look(listed: tuple[str, str, Item], channels: int) -> Seen:
    split, label, item = listed
    path = shown(str(item))
    try:
        data = item.read(QUICK.limits) if isinstance(item, Member) else read_file(item, QUICK.limits)
        picture = decode(data, channels=channels, options=QUICK, at_least=2 * SIDE)
    except BadPicture as error:
        return Seen(path, split, label, error=copy(error))
    thumb = thumbnail(_flattened(picture))
    return Seen(
        path,
        split,
        label,
        hashlib.blake2b(data, digest_size=16).digest(),
        fingerprint(thumb),
        float(thumb.mean()),
        picture.width,
        picture.height,
        picture.format,
        picture.notes,
    )


def _flattened(picture: Picture) -> Image.Image:
    if isinstance(picture.pixels, Image.Image):
        return picture.pixels
    return Image.fromarray(picture.pixels.mean(axis=2).astype(np.uint8))


def _exact(seen: Sequence[Seen]) -> Iterable[Group]:
    by_digest: dict[bytes, list[Seen]] = defaultdict(list)
    for one in seen:
        by_digest[one.digest].append(one)
    return [_group("exact", same) for same in by_digest.values() if len(same) > 1]


def _near(seen: Sequence[Seen]) -> Iterable[Group]:
    """Groups in which not every file is an exact copy; those are told already."""
    groups = ([seen[place] for place in places] for places in near_groups([one.look for one in seen]))
    return [_group("near", group) for group in groups if len({one.digest for one in group}) > 1]


def _group(kind: str, same: Sequence[Seen]) -> Group:
    return Group(
        kind=kind,
        paths=tuple(one.path for one in same),
        splits=tuple(sorted({one.split for one in same})),
        classes=tuple(sorted({one.label for one in same})),
    )


def _outliers(seen: Sequence[Seen]) -> Iterable[Outlier]:
    values = {
        "pixels": [math.log2(one.width * one.height) for one in seen],
        "shape": [math.log2(one.width / one.height) for one in seen],
        "brightness": [one.brightness for one in seen],
    }
    for kind, numbers in values.items() if seen else ():
        median = statistics.median(numbers)
        deviation = statistics.median(abs(number - median) for number in numbers)
        far = FAR * max(1.4826 * deviation, LEAST_SPREAD[kind])  # 1.4826: of a normal distribution, the standard one
        for one, number in zip(seen, numbers, strict=True):
            if abs(number - median) > far:
                yield Outlier(path=one.path, kind=kind, value=_plain(kind, number), median=_plain(kind, median))
    yield from (
        Outlier(path=one.path, kind="blank", value=one.brightness, median=0) for one in seen if one.look is None
    )


def _plain(kind: str, number: float) -> float:
    """As people say it: sizes and shapes are compared as logarithms."""
    return round(number, 1) if kind == "brightness" else round(2**number, 2)


def _alike(names: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Class names that differ only in case, spaces, dashes or how an accent is stored."""
    looks: dict[str, list[str]] = defaultdict(list)
    for name in names:
        looks[re.sub(r"[\s_-]+", " ", normalize("NFKC", name).casefold()).strip()].append(name)
    return tuple(tuple(same) for same in looks.values() if len(same) > 1)
