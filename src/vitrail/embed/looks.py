"""The same picture twice: found by what the model is given, whatever the files are called and how they are stored."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from PIL import Image

from vitrail.images.similar import fingerprint, near_groups, thumbnail
from vitrail.images.wide import Array

Kind = Literal["exact", "near"]


@dataclass(frozen=True, slots=True)
class Look:
    """What one picture looks like to the model: its very pixels, and a fingerprint that survives small changes."""

    digest: str
    fingerprint: int | None  # None: nothing to be seen in it


def look_of(pixels: Array) -> Look:
    """The look of pixels as they come from the resize, height x width x channels."""
    digest = hashlib.blake2b(np.ascontiguousarray(pixels).data, digest_size=16).hexdigest()
    grey = pixels.mean(axis=2) if pixels.shape[2] not in (1, 3) else pixels.squeeze()
    scaled = grey // 257 if pixels.dtype == np.uint16 else grey
    return Look(digest, fingerprint(thumbnail(Image.fromarray(scaled.astype(np.uint8)))))


def duplicates(looks: Sequence[Look | None]) -> dict[int, tuple[int, Kind]]:
    """For the place of every repeated picture the place of an earlier one, with the same pixels or like it."""
    groups = near_groups([look.fingerprint if look else None for look in looks])
    found: dict[int, tuple[int, Kind]] = {place: (group[0], "near") for group in groups for place in group[1:]}
    firsts: dict[str, int] = {}
    for place, look in enumerate(looks):
        if look and (first := firsts.setdefault(look.digest, place)) != place:
            found[place] = first, "exact"
    return found
