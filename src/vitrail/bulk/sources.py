"""What people give as pictures, as a list: one picture, several, or folders and patterns that stand for many."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from PIL import Image

from vitrail.errors import UsageError
from vitrail.images import manifest, shards
from vitrail.images.decode import Source
from vitrail.images.listing import list_inputs
from vitrail.images.shards import Member
from vitrail.images.walk import expand

Pictures: TypeAlias = Source | Iterable[Source]
ONE = (bytes, str, os.PathLike, Member, Image.Image)


def is_one(pictures: Any) -> bool:
    """Whether this is one picture, and not something that stands for several."""
    if isinstance(pictures, np.ndarray):
        return pictures.ndim < 4
    return isinstance(pictures, ONE) and not stands_for_many(pictures)


def every(pictures: Any) -> list[Source]:
    """The pictures, in the order given; a folder, a pattern, a manifest or a tar gives its files, sorted."""
    if isinstance(pictures, ONE) or is_one(pictures):
        return list(one_or_many(pictures))
    if not isinstance(pictures, Iterable):
        raise UsageError(
            f"Pictures were given as {type(pictures).__name__}.",
            "A path, a folder, a pattern, the bytes of a file, a Pillow picture, an array, or a list of these.",
        )
    return [source for one in pictures for source in one_or_many(one)]


def file_names(pictures: Any) -> list[str]:
    """Paths, folders and patterns as text: what a job that can be resumed works on."""
    names = [pictures] if isinstance(pictures, str | os.PathLike) else list(pictures)
    strange = next((name for name in names if not isinstance(name, str | os.PathLike)), None)
    if strange is not None:
        raise UsageError(
            f"With `out`, a picture was given as {type(strange).__name__}.",
            "Paths, folders or patterns: what can be read again after an interruption.",
            "Leave `out` away for pictures in memory.",
        )
    return [os.fspath(name) for name in names]


def one_or_many(given: Any) -> Iterator[Source]:
    """What one of the things given stands for."""
    if stands_for_many(given):
        yield from list_inputs([given]).items
    else:
        yield given


def stands_for_many(given: Any) -> bool:
    """Whether this names more than one picture."""
    if not isinstance(given, str | os.PathLike):
        return False
    name = os.fspath(given)
    path = Path(name)
    several = path.is_dir() or (path.suffix.lower() in (*manifest.SUFFIXES, shards.SUFFIX) and path.is_file())
    return several or expand(name) != [name]
