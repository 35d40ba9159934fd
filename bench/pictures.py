"""The pictures a bench reads: photos beside the checkout where there are some, else those that come with vitrail."""

from __future__ import annotations

import shutil
from importlib import resources
from pathlib import Path

import numpy as np

from vitrail.config import Preprocess
from vitrail.images.transforms import read

BESIDE = Path(__file__).resolve().parents[2] / "shared" / "data" / "photos"


def photos() -> list[Path]:
    """JPEG files of photos, in order of their names."""
    own = Path(str(resources.files("vitrail") / "samples"))
    return sorted((BESIDE if BESIDE.is_dir() else own).glob("*.jpg"))


def folder_of(count: int, where: Path, per_folder: int) -> Path:
    """So many JPEG files in subfolders of so many each, every photo as often as it takes."""
    given = photos()
    for index in range(count):
        subfolder = where / f"{index // per_folder:03d}"
        subfolder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(given[index % len(given)], subfolder / f"{index:05d}.jpg")
    return where


def pixels(count: int, preprocess: Preprocess) -> np.ndarray:
    """Photos as a model of this preprocessing receives them: uint8, count x rows x cols x channels."""
    given = photos()
    return np.stack([read(given[index % len(given)], preprocess)[0] for index in range(count)])
