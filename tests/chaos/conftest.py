"""Runs write and sync often; a folder in memory, where there is one, makes these tests several times faster."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from train.tiny import make_pictures

MEMORY = Path("/dev/shm")


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder of the test's own."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None, prefix="vitrail-test-") as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixty pictures of three classes."""
    return make_pictures(tmp_path_factory.mktemp("data") / "stripes")
