"""Handwritten digits as a folder for `vitrail train`: python recipes/digits.py OUT

1,797 pictures of 8 x 8 pixels that come with scikit-learn (UCI, BSD). Every fifth is for validation.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits


def main(out: Path) -> None:
    """A PNG per picture, in a folder per class, in a folder per split."""
    found = load_digits()
    for index, (pixels, label) in enumerate(zip(found.images, found.target, strict=True)):
        folder = out / ("val" if index % 5 == 4 else "train") / str(label)
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.uint8(pixels * 255 / 16)).save(folder / f"{index:04}.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
