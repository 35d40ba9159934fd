"""The digits that ship are those everybody knows, and their folder is a data set."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from vitrail.images.digits import digits, write_digits
from vitrail.images.folder import read_data


def test_every_digit_of_the_sheet_is_one_of_scikit_learns() -> None:
    known = load_digits()
    ours = [(digit, pixels.tobytes()) for digit, _, pixels in digits()]
    pixels = (known.images * 255 / 16).round().astype(np.uint8)
    theirs = [(int(label), image.tobytes()) for label, image in zip(known.target, pixels, strict=True)]
    assert sorted(ours) == sorted(theirs)


def test_the_folder_is_a_data_set_with_both_splits(tmp_path: Path) -> None:
    found = read_data(write_digits(tmp_path / "digits"))
    assert found.classes == tuple("0123456789")
    assert {split: len(samples) for split, samples in found.splits.items()} == {"train": 1442, "val": 355}
