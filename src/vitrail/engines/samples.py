"""Real pictures to try an engine on: crops of the photos that come with vitrail."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources

import numpy as np
from PIL import Image

from vitrail.config import Pair
from vitrail.engines.base import FULL_SCALE, Pictures

PHOTOS = ("cat.jpg", "coffee.jpg", "astronaut.jpg")
SCALES = (0.95, 0.8, 0.6, 0.45)  # of the photo's shorter side
PLACES = (0.5, 0.0, 1.0, 0.25, 0.75)  # where in the photo, along both axes


def sample_pictures(size: Pair, channels: int, depth: int, count: int) -> Pictures:
    """Different pictures of one size; where a model has other channels than three, they repeat."""
    crops = [crop for _, crop in zip(range(count), every_crop(size), strict=False)]
    repeated = np.stack(crops)[..., np.arange(channels) % 3]
    if depth == 8:
        return repeated
    return repeated.astype(np.uint16) * (FULL_SCALE[16] // FULL_SCALE[8])


def every_crop(size: Pair) -> Iterator[np.ndarray]:
    """Crops of the right proportions, the largest and most central first, each also in a mirror."""
    photos = [Image.open(resources.files("vitrail") / "samples" / name).convert("RGB") for name in PHOTOS]  # type: ignore[arg-type]
    for scale in SCALES:
        for down in PLACES:
            for across in PLACES:
                for photo in photos:
                    crop = cropped(photo, size, scale, down, across)
                    yield crop
                    yield crop[:, ::-1]


def cropped(photo: Image.Image, size: Pair, scale: float, down: float, across: float) -> np.ndarray:
    """One crop, resized."""
    rows, cols = size
    ratio = scale * min(photo.height / rows, photo.width / cols)
    height, width = rows * ratio, cols * ratio
    top, left = (photo.height - height) * down, (photo.width - width) * across
    box = (left, top, left + width, top + height)
    return np.asarray(photo.resize((cols, rows), Image.Resampling.BILINEAR, box))
