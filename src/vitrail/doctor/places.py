"""The folders vitrail writes to: how much room there is, and what the cache holds."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from vitrail.checkpoint.hub import cache
from vitrail.doctor.report import Place


def places() -> tuple[Place, ...]:
    """Where results go by default, where downloads and compiled engines are kept, where pieces are put together."""
    return (
        place("runs", Path.cwd() / "runs"),
        place("cache", cache(), used=True),
        place("temporary files", Path(tempfile.gettempdir())),
    )


def place(use: str, path: Path, *, used: bool = False) -> Place:
    """A folder, or the one it would be made in."""
    there = path
    while not there.exists() and there != there.parent:
        there = there.parent
    writable = there.is_dir() and os.access(there, os.W_OK | os.X_OK)
    return Place(use=use, path=str(path), writable=writable, free=room(there), used=size(path) if used else None)


def room(path: Path) -> int | None:
    """Bytes that may still be written there."""
    with suppress(OSError):
        return shutil.disk_usage(path).free
    return None


def size(folder: Path) -> int:
    """Bytes of all files below; links are not followed, and files that vanish meanwhile are no longer there."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += (Path(root) / name).lstat().st_size
    return total
