"""The list of a job, frozen before its first picture: whatever happens to the folders later, these are its rows.

inputs.lock: a line of JSON about the job, then a line per file. Python's own JSON holds names that are not UTF-8.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vitrail.checkpoint.atomic import replacing
from vitrail.errors import UsageError
from vitrail.images.listing import Item
from vitrail.images.shards import Member

NAME = "inputs.lock"


@dataclass(frozen=True)
class Frozen:
    """What is known about a list without reading it, and what must not change until its last row."""

    count: int
    sha256: str  # of the lines that follow
    folder: str  # relative names are relative to it
    asked: Mapping[str, Any]  # by whom, of which model, with which settings


def freeze(folder: Path, items: Sequence[Item], asked: Mapping[str, Any]) -> Frozen:
    """Write the list of a job into its folder."""
    head = Frozen(len(items), digest(map(as_line, items)), os.getcwd(), asked)  # noqa: PTH109
    with replacing(folder / NAME) as file:
        file.write(json.dumps({"schema_version": 1} | asdict(head)).encode() + b"\n")
        file.writelines(map(as_line, items))
    return head


def read_head(folder: Path) -> Frozen:
    """What the lock of a job says, checked against its lines."""
    try:
        with (folder / NAME).open("rb") as file:
            fields = json.loads(file.readline())
            fields.pop("schema_version")
            head = Frozen(**fields)
            if digest(file) != head.sha256:
                raise ValueError("its lines are not those it was written with")
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UsageError(
            f"{folder / NAME} cannot be used ({error}).",
            "The list the job was begun with.",
            f"Remove {folder}; begin again.",
        ) from None
    return head


def read_items(folder: Path) -> Iterator[Item]:
    """Every file of the list, one at a time."""
    with (folder / NAME).open("rb") as file:
        next(file)
        for line in file:
            item = json.loads(line)
            yield item if isinstance(item, str) else Member(*item)


def as_line(item: Item) -> bytes:
    """A file, or a file inside a tar, as a line of JSON."""
    named = item if isinstance(item, str) else [item.shard, item.name, item.offset, item.size]
    return json.dumps(named).encode() + b"\n"


def digest(lines: Iterable[bytes]) -> str:
    """A hash of the list."""
    hasher = hashlib.sha256()
    for line in lines:
        hasher.update(line)
    return hasher.hexdigest()
