"""Pictures inside tar files: an index of where each one is, so that any of them is one read away. Nothing is unpacked.

A member's name is only ever shown and split into labels; one that tries to leave the archive is skipped all the same.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, cast

from vitrail.errors import DataError
from vitrail.images.reading import BadPicture, Limits, check_bytes, check_name
from vitrail.images.walk import skipped_kind

if TYPE_CHECKING:
    import tarfile  # otherwise only where a tar is opened: it brings three compression libraries along

SUFFIX = ".tar"
SPLITS = ("train", "val", "test")  # folders of these names are no classes
BESIDE = (".cls", ".json", ".txt")  # what webdataset puts beside a picture
LABELS = Limits(file_bytes=4096)


@dataclass(frozen=True, slots=True)
class Member:
    """A file inside a tar file: where it begins, and how long it is."""

    shard: str
    name: str
    offset: int
    size: int

    def __str__(self) -> str:
        return f"{self.shard}/{self.name}"

    def read(self, limits: Limits) -> bytes:
        """Its bytes."""
        check_name(str(self))
        check_bytes(self.size, limits)
        if not self.size:
            raise BadPicture("empty", "The file is empty (0 bytes).", "A picture.")
        try:
            with open(self.shard, "rb") as file:  # noqa: PTH123 (a Path per picture costs more than the open)
                file.seek(self.offset)
                data = file.read(self.size)
        except OSError as error:
            raise BadPicture("unreadable", f"The tar file cannot be read ({error}).", "A readable tar file.") from None
        if len(data) < self.size:
            raise BadPicture("truncated", f"The tar file ends after {len(data):,} bytes.", f"{self.size:,} bytes.")
        return data


def index(path: Path) -> tuple[list[Member], Counter[str]]:
    """The files inside a tar, in its order, and how many entries were skipped, by kind."""
    members, skipped = [], Counter[str]()
    for entry in _entries(path):
        if kind := _skipped_kind(entry):
            skipped[kind] += 1
        elif not entry.isdir():
            members.append(Member(os.fspath(path), entry.name.removeprefix("./"), entry.offset_data, entry.size))
    return members, skipped


def labelled(path: Path, skipped: Counter[str]) -> Iterator[tuple[tuple[str, ...], str | None, Member]]:
    """Every picture of a tar with the folders above it, and its label where a `.cls` file beside it has one."""
    members, others = index(path)
    skipped.update(others)
    labels = {_key(member): _text(member) for member in members if member.name.endswith(".cls")}
    pictures = [member for member in members if not (labels and member.name.endswith(BESIDE))]
    skipped["label or note beside a picture"] += len(members) - len(pictures)
    wrapper = _wrapper(pictures)
    for member in pictures:
        if labels and _key(member) not in labels:
            raise DataError(f"{member} has no label.", f"A member {_key(member)}.cls.", "Write the shard again.")
        folders = PurePosixPath(member.name).parts[:-1]
        yield folders[wrapper:], labels.get(_key(member)), member


def _wrapper(members: Sequence[Member]) -> int:
    """1 if everything lies in one folder with folders in it, as `tar cf pets.tar pets` packs it; else 0."""
    folders = [PurePosixPath(member.name).parts[:-1] for member in members]
    first = {parts[0] if parts else "" for parts in folders}
    return int(len(first) == 1 and not first <= set(SPLITS) and all(len(parts) > 1 for parts in folders))


def _key(member: Member) -> str:
    """What belongs together in a webdataset shard: the name up to the first dot."""
    folder, slash, name = member.name.rpartition("/")
    return folder + slash + name.partition(".")[0]


def _text(member: Member) -> str:
    return member.read(LABELS).decode("utf-8", "surrogateescape").strip()


def _entries(path: Path) -> Iterator[tarfile.TarInfo]:
    import tarfile

    try:
        with tarfile.open(path, "r:") as tar:
            end = 0
            for entry in tar:
                # A negative size would send the reader back, to read the same entry for ever (CVE-2025-8194).
                if entry.size < 0 or tar.offset <= end:
                    raise tarfile.ReadError("an entry has a negative size")
                end = tar.offset
                yield entry
                cast(Any, tar).members.clear()  # tarfile keeps every entry it has seen
    except (tarfile.TarError, OSError, EOFError, ValueError) as error:
        raise DataError(
            f"{path} cannot be read as a tar file ({error}).",
            "An uncompressed, complete .tar: pictures are read from the middle of it.",
            "Uncompress it (gunzip), or copy it again.",
        ) from None


def _skipped_kind(entry: tarfile.TarInfo) -> str | None:
    name = PurePosixPath(entry.name)
    if entry.isdir():
        return None
    if not entry.isreg() or entry.issparse():
        return "no regular file"
    if name.is_absolute() or ".." in name.parts or "\0" in entry.name:
        return "unsafe name"
    return next((kind for part in name.parts if (kind := skipped_kind(part))), None)
