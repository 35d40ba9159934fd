"""Which files are meant: folders, patterns, lists and single names to one sorted list, each file once.

Nothing is left out silently: what is skipped is counted by kind, and what cannot be read stays on the list.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeAlias

from vitrail.errors import DataError
from vitrail.images import manifest, shards
from vitrail.images.shards import Member
from vitrail.images.walk import expand, walk

Item: TypeAlias = str | Member  # a file, or a file inside a tar


@dataclass(frozen=True)
class Inputs:
    """Every file to work on, in order, and how many were skipped, by kind."""

    items: tuple[Item, ...]
    skipped: dict[str, int]


def list_inputs(arguments: Sequence[str | os.PathLike[str]], stdin: BinaryIO | None = None) -> Inputs:
    """Folders (recursive), patterns, manifests, tar files, single files and `-` (a list on stdin) to one list."""
    found: set[Item] = set()
    skipped: Counter[str] = Counter()
    for argument in [os.fspath(argument) for argument in arguments]:
        names = parse_list(stdin.read()) if argument == "-" and stdin else expand(argument)
        for name in names:
            found.update(_files(name, skipped))
    if not found:
        asked = " ".join(str(argument) for argument in arguments)
        raise DataError(
            f"There are no files in {asked!r} ({_counted(skipped)}).",
            "Folders, patterns such as 'photos/*.jpg', manifests, tar files or single files.",
            "Check the path.",
        )
    return Inputs(tuple(sorted(found, key=str)), dict(skipped))


def parse_list(data: bytes) -> list[str]:
    """Names from a list: one per line, or separated by zero bytes (`find -print0`)."""
    parts = data.split(b"\0") if b"\0" in data else data.splitlines()
    return [os.fsdecode(part) for part in parts if part.strip()]


def _files(name: str, skipped: Counter[str]) -> Iterable[Item]:
    path = Path(name)
    if path.is_dir():
        return walk(name, skipped)
    if not path.is_file():  # missing, or a pipe that must not be opened: an error row
        return [name]
    if path.suffix.lower() in manifest.SUFFIXES:
        return [row.path for row in manifest.read(path)]
    if path.suffix.lower() == shards.SUFFIX:
        members, others = shards.index(path)
        skipped.update(others)
        return members
    return [name]


def _counted(skipped: Counter[str]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(skipped.items())) or "nothing was skipped"
