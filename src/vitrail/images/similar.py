"""Pictures that show the same: a 64-bit fingerprint of what a picture looks like, and groups of near fingerprints.

The fingerprint says for each of the 63 lowest spatial frequencies whether there is more of it than usual. Measured on
120 photos: JPEG at quality 50, half or double size, grey, other contrast change at most 2 bits, brightness by a fifth
6, while different photos differ in at least 16 bits (median 32).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from PIL import Image

NEAR = 4  # bits two fingerprints of one picture may differ in
SIDE, KEPT = 32, 8
FLAT = 2.0  # standard deviation in levels below which a picture has noise to compare and nothing else
_WAVES = np.cos(np.pi * (2 * np.arange(SIDE) + 1) * np.arange(KEPT)[:, None] / (2 * SIDE))  # DCT-II, lowest rows


def thumbnail(image: Image.Image) -> NDArray[np.float64]:
    """The brightness of a picture on 32 x 32 points."""
    return np.asarray(image.convert("L").resize((SIDE, SIDE), Image.Resampling.BILINEAR), np.float64)


def fingerprint(thumb: NDArray[np.float64]) -> int | None:
    """64 bits that survive another size, compression, colour and contrast; None for a picture with nothing in it."""
    if thumb.std() < FLAT:
        return None
    waves = (_WAVES @ thumb @ _WAVES.T).ravel()[1:]  # without the mean brightness
    return int.from_bytes(np.packbits(waves > np.median(waves)).tobytes(), "big")


def near_groups(fingerprints: Sequence[int | None]) -> list[list[int]]:
    """Places in the list whose fingerprints are near each other, joined into groups of two or more."""
    places: dict[int, list[int]] = defaultdict(list)
    for place, value in enumerate(fingerprints):
        if value is not None:
            places[value].append(place)
    links = ((places[a][0], places[b][0]) for a, b in _near_pairs(list(places)))
    same = ((first, other) for first, *others in places.values() for other in others)
    return joined([*links, *same])


def joined(links: Iterable[tuple[int, int]]) -> list[list[int]]:
    """Groups of what is linked, directly or through others; each sorted, in order of the first."""
    leader: dict[int, int] = {}

    def lead(place: int) -> int:
        while leader.setdefault(place, place) != place:
            leader[place] = leader[leader[place]]
            place = leader[place]
        return place

    for one, other in links:
        low, high = sorted((lead(one), lead(other)))
        leader[high] = low
    groups: dict[int, list[int]] = defaultdict(list)
    for place in sorted(leader):
        groups[lead(place)].append(place)
    return sorted(groups.values())


def _near_pairs(values: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Pairs at most NEAR bits apart, without comparing all: cut into NEAR + 1 bands, one band has to be equal."""
    width = -(-64 // (NEAR + 1))
    for band in range(NEAR + 1):
        buckets: dict[int, list[int]] = defaultdict(list)
        for value in values:
            buckets[value >> band * width & (1 << width) - 1].append(value)
        for bucket in buckets.values():
            yield from ((a, b) for a, b in combinations(bucket, 2) if (a ^ b).bit_count() <= NEAR)
