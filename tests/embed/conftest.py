"""The tiny model and the pictures of the tests of predict, with two that repeat another."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from predict.conftest import cache, checkpoint, model, photo
from predict.conftest import photos as some_photos

__all__ = ["cache", "checkpoint", "model", "photo", "some_photos"]


@pytest.fixture
def photos(some_photos: Path) -> Path:
    """Twelve pictures, one of them under another name, one stored otherwise, and two files that are none."""
    shutil.copy(some_photos / "a" / "03.png", some_photos / "b" / "copy.png")
    photo(5, side=300).save(some_photos / "b" / "large.jpg")
    return some_photos
