"""A picture to change, and what a change made of it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image


def photo(width: int = 90, height: int = 60, seed: int = 0) -> Image.Image:
    """Something with edges, slopes and noise."""
    draw = np.random.RandomState(seed)
    y, x = np.mgrid[:height, :width]
    channels = [128 + 90 * np.sin(x / draw.uniform(3, 20) + y / draw.uniform(3, 20)) for _ in range(3)]
    array = np.stack(channels, axis=2) + draw.normal(0, 12, (height, width, 3))
    return Image.fromarray(array.clip(0, 255).astype(np.uint8))


def pixels(image: Image.Image) -> NDArray[np.int16]:
    return np.asarray(image).astype(np.int16)
