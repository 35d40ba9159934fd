"""What a committed folder says about itself: every file with its size and SHA-256, and a digest of the list itself.

The text has one spelling only, so a single changed bit anywhere, in a file or in the list, is noticed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from vitrail.config import Frozen
from vitrail.errors import CheckpointError

NAME = "MANIFEST.json"
CHUNK = 2**20


class FileFacts(Frozen, frozen=True, kw_only=True):
    """How long a file is and what it hashes to."""

    bytes: int
    sha256: str


class Manifest(Frozen, frozen=True, kw_only=True):
    """The files of one checkpoint, and its place among the run's checkpoints."""

    schema_version: int = 1
    step: int  # training steps taken
    serial: int  # counts the commits of a run: of two verified checkpoints the larger is the newer
    files: dict[str, FileFacts]


def describe(folder: Path, names: Iterable[str], step: int, serial: int) -> bytes:
    """The manifest of files that are there, as it is written."""
    return spell(Manifest(step=step, serial=serial, files={name: facts(folder / name) for name in sorted(names)}))


def spell(manifest: Manifest) -> bytes:
    """The one spelling of a manifest."""
    fields: dict[str, Any] = msgspec.to_builtins(manifest)
    digest = hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
    return json.dumps(fields | {"digest": digest}, indent=1, sort_keys=True).encode() + b"\n"


def read(folder: Path) -> Manifest:
    """The manifest of a folder, if it is intact."""
    try:
        content = (folder / NAME).read_bytes()
        fields = json.loads(content)
        fields.pop("digest")
        manifest = msgspec.convert(fields, Manifest)
    except FileNotFoundError:
        raise CheckpointError(f"{folder.name} has no {NAME}: its writing was cut short.") from None
    except (OSError, ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise CheckpointError(f"{folder.name}: {NAME} cannot be read ({error}).") from None
    if spell(manifest) != content:
        raise CheckpointError(f"{folder.name}: {NAME} was changed after it was written.")
    return manifest


def verify(folder: Path) -> Manifest:
    """The manifest of a folder whose every file is as it was written."""
    manifest = read(folder)
    for name, expected in manifest.files.items():
        try:
            found = facts(folder / name)
        except OSError as error:
            raise CheckpointError(f"{folder.name}: {name} cannot be read ({error.strerror}).") from None
        if found.bytes != expected.bytes:
            raise CheckpointError(f"{folder.name}: {name} has {found.bytes:,} bytes, written were {expected.bytes:,}.")
        if found.sha256 != expected.sha256:
            raise CheckpointError(f"{folder.name}: {name} was changed after it was written.")
    return manifest


def facts(path: Path) -> FileFacts:
    """Size and hash of a file."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while piece := file.read(CHUNK):
            digest.update(piece)
            size += len(piece)
    return FileFacts(bytes=size, sha256=digest.hexdigest())
