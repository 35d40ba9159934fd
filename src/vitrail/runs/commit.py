"""Checkpoints that are either whole or not there.

    write into .writing-step-N -> fsync -> MANIFEST.json -> fsync -> rename to step-N -> fsync the folder -> LATEST

Whatever stops a commit, at whatever call, the checkpoint before it is untouched; the newest one whose manifest
verifies is where a run goes on. A damaged checkpoint is set aside under another name and never deleted.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from vitrail.checkpoint.atomic import replacing
from vitrail.errors import CheckpointError, EnvironmentProblem
from vitrail.runs import manifest

WRITING, GONE, DAMAGED = ".writing-", ".gone-", "damaged-"
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
HEADROOM = 1.2  # free space asked for before a save, as a multiple of its size

Writer = Callable[[Path], None]  # puts files into an empty folder


@dataclass(frozen=True)
class Checkpoint:
    """A committed folder whose every byte is as it was written."""

    path: Path
    step: int
    serial: int


@dataclass(frozen=True)
class Damaged:
    """A folder that looks like a checkpoint and cannot be used."""

    path: Path
    reason: str


class NoRoom(EnvironmentProblem):
    """The disk is full or failing; nothing that was there before is touched."""


def commit(folder: Path, step: int, size: int, write: Writer, keep: int = 2) -> Checkpoint:
    """Write a checkpoint of about `size` bytes, and leave the newest `keep`."""
    name = f"step-{step:09d}"
    writing, final = folder / f"{WRITING}{name}", folder / name
    try:
        make_room(folder, size)
        serial = next_serial(folder)
        shutil.rmtree(writing, ignore_errors=True)
        writing.mkdir()
        write(writing)
        seal(writing, step, serial)
        retire(final)  # the same step may be committed before and after its evaluation
        writing.rename(final)
        sync_folder(folder)
        with replacing(folder / "LATEST") as file:  # for people; resuming verifies and does not trust it
            file.write(f"{name}\n".encode())
        prune(folder, keep)
    except BaseException as error:
        shutil.rmtree(writing, ignore_errors=True)
        if is_no_room(error):
            raise no_room(folder, error) from error
        raise
    return Checkpoint(final, step, serial)


def seal(folder: Path, step: int, serial: int) -> None:
    """Put every file on the disk, then the manifest that vouches for them."""
    names = [path.name for path in folder.iterdir()]
    for name in names:
        sync(folder / name)
    with (folder / manifest.NAME).open("xb") as file:
        file.write(manifest.describe(folder, names, step, serial))
        file.flush()
        os.fsync(file.fileno())
    sync_folder(folder)


def newest(folder: Path) -> tuple[Checkpoint | None, list[Damaged]]:
    """The newest checkpoint that verifies, and what had to be passed over to find it."""
    damaged: list[Damaged] = []
    readable: list[tuple[int, Path]] = []
    for path in candidates(folder):
        try:
            readable.append((manifest.read(path).serial, path))
        except CheckpointError as error:
            if not path.name.startswith(WRITING):  # a save that was cut short is no loss
                damaged.append(Damaged(path, error.found))
    for serial, path in sorted(readable, reverse=True):
        try:
            return Checkpoint(path, manifest.verify(path).step, serial), damaged
        except CheckpointError as error:
            damaged.append(Damaged(path, error.found))
    return None, damaged


def tidy(folder: Path, chosen: Checkpoint | None, damaged: list[Damaged]) -> Checkpoint | None:
    """Make the folder ready to go on: finish a rename, set damaged ones aside, drop half-written ones."""
    for one in damaged:
        one.path.rename(free_name(folder / f"{DAMAGED}{one.path.name.removeprefix(WRITING)}"))
    if chosen and chosen.path.name.startswith(WRITING):  # killed between the last fsync and the rename
        final = folder / chosen.path.name.removeprefix(WRITING)
        retire(final)
        chosen = Checkpoint(chosen.path.rename(final), chosen.step, chosen.serial)
    for path in [*folder.glob(f"{WRITING}*"), *folder.glob(f"{GONE}*"), *folder.glob(".LATEST.*.tmp")]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return chosen


def prune(folder: Path, keep: int) -> None:
    """Remove all but the newest `keep` checkpoints."""
    readable: list[tuple[int, Path]] = []
    for path in folder.glob("step-*"):
        with suppress(CheckpointError):
            readable.append((manifest.read(path).serial, path))
    for _, path in sorted(readable, reverse=True)[keep:]:
        retire(path)
    for path in folder.glob(f"{GONE}*"):
        shutil.rmtree(path, ignore_errors=True)


def retire(path: Path) -> None:
    """Take a checkpoint's name away in one step, so that a half-removed one never looks like a damaged one."""
    if path.exists():
        path.rename(free_name(path.with_name(f"{GONE}{path.name}")))


def make_room(folder: Path, size: int) -> None:
    """Check for space; if there is too little, let go of all but the newest checkpoint and check again."""
    if free_bytes(folder) >= size * HEADROOM:
        return
    prune(folder, keep=1)
    if free_bytes(folder) < size * HEADROOM:
        raise NoRoom(
            f"{folder} has {free_bytes(folder):,} bytes free.",
            f"A checkpoint takes {size:,}, and a fifth more to be safe.",
            "Free some space and resume; the last checkpoint is untouched.",
        )


def free_bytes(folder: Path) -> int:
    """Room on the disk a folder is on."""
    return shutil.disk_usage(folder).free


def next_serial(folder: Path) -> int:
    """One more than any checkpoint in the folder says, damaged ones included."""
    largest = 0
    for path in [*candidates(folder), *folder.glob(f"{DAMAGED}*")]:
        with suppress(CheckpointError):
            largest = max(largest, manifest.read(path).serial)
    return largest + 1


def candidates(folder: Path) -> list[Path]:
    """Every folder that may hold a checkpoint."""
    return [path for pattern in ("step-*", f"{WRITING}step-*") for path in folder.glob(pattern) if path.is_dir()]


def free_name(path: Path) -> Path:
    """The path, with a number if the name is taken."""
    names = (path.with_name(f"{path.name}.{number}") for number in range(1, 10**6))
    return path if not path.exists() else next(name for name in names if not name.exists())


def sync(path: Path) -> None:
    """Wait until a file is on the disk."""
    with path.open("r+b") as file:
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until a folder's names are on the disk."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_no_room(error: BaseException | None) -> bool:
    """Whether a full or failing disk is behind an error."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            return True
        error = error.__cause__
    return False


def no_room(folder: Path, error: BaseException) -> NoRoom:
    """The error that says so."""
    return NoRoom(
        f"Nothing more can be written to {folder} ({error}).",
        "A disk with room for a checkpoint.",
        "Free some space and resume; the last checkpoint is untouched.",
    )
