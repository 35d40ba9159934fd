"""The handwritten digits that come along: one sheet, a row of 8 x 8 pictures for each digit, cut into a data set."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from vitrail.images.wide import Array

SAMPLES = Path(__file__).parents[1] / "samples"
SHEET = SAMPLES / "digits.png"
SIDE = 8
VALIDATES = 5  # every fifth picture of a digit


def write_digits(root: Path) -> Path:
    """root/{train,val}/{0 ... 9}/*.png: 1,442 and 355 pictures."""
    for digit, index, pixels in digits():
        folder = root / ("val" if index % VALIDATES == VALIDATES - 1 else "train") / str(digit)
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / f"{index:03}.png")
    return root


def digits() -> Iterator[tuple[int, int, Array]]:
    """Which digit, the how-manieth of its kind, and its pixels."""
    sheet = np.asarray(Image.open(SHEET))
    cells = sheet.reshape(sheet.shape[0] // SIDE, SIDE, -1, SIDE).swapaxes(1, 2)
    for digit, row in enumerate(cells):
        written = (pixels for pixels in row if pixels.any())  # a row that is shorter than the longest ends in black
        for index, pixels in enumerate(written):
            yield digit, index, pixels
