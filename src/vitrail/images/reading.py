"""The bytes of a picture, from a path, within limits, without ever waiting. Knows nothing about pictures.

A path can name anything: a pipe nobody writes to, a device, a link to itself, a file that is gone by now.
Each of these becomes a BadPicture whose `reason` fits into a row of a table (REASONS lists them all).
"""

from __future__ import annotations

import errno
import os
import stat
from io import RawIOBase
from typing import SupportsIndex

from vitrail.config import Frozen
from vitrail.errors import DataError

REASONS = {
    "missing": "there is no such file, or it went away",
    "unreadable": "the file exists but may not or cannot be read",
    "not_a_file": "a directory, pipe, socket or device",
    "symlink_loop": "a link that leads to itself",
    "undecodable_name": "the name is not text (invalid UTF-8, or a zero byte)",
    "empty": "zero bytes",
    "too_many_bytes": "the file is larger than the limit",
    "unknown_format": "not a picture in a format on the list",
    "too_many_pixels": "the header announces more pixels than the limit",
    "side_too_long": "the header announces a side longer than the limit",
    "too_many_scans": "a progressive JPEG with more scans than any encoder writes",
    "metadata_too_large": "a colour profile or a text block above the limit",
    "truncated": "the file ends before the picture does",
    "corrupt": "the picture cannot be decoded",
    "wrong_channels": "the number of channels is not the model's",
    "wrong_size": "the picture is not the model's size, and the model's preprocessing does not change that",
    "value_range": "values that no rule maps to a brightness: negative, above 1 for floats, not finite",
    "out_of_memory": "decoding needs more memory than there is",
}


class Limits(Frozen, frozen=True, kw_only=True):
    """What a file may announce before a single pixel is decoded."""

    pixels: int = 256_000_000
    side: int = 32_768
    file_bytes: int = 512 * 2**20
    icc_bytes: int = 2**20
    scans: int = 100  # encoders write about 10; a small file with thousands keeps a decoder busy for minutes


PREDICTING = Limits()
SERVING = Limits(pixels=64_000_000, file_bytes=20_000_000)  # for pictures that strangers send


class BadPicture(DataError):
    """A picture that cannot be used. `reason` is a key of REASONS; `row` is what a table shows."""

    def __init__(self, reason: str, found: str, expected: str = "", fix: str = "") -> None:
        assert reason in REASONS, reason
        super().__init__(found, expected, fix)
        self.reason = reason

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[type[BadPicture], tuple[str, str, str, str]]:
        # The base class replays three parts when a worker process sends an error back; this one has four.
        return type(self), (self.reason, self.found, self.expected, self.fix)

    @property
    def row(self) -> str:
        """One line for an error column: the reason, then what was found."""
        return f"{self.reason}: {' '.join(self.found.split())}"


def read_file(path: str | os.PathLike[str], limits: Limits = PREDICTING) -> bytes:
    """All bytes of a regular file; a BadPicture for anything else."""
    check_name(path)
    try:
        # Asked before opening: opening a pipe would wake its writer, opening a device can move a tape.
        _check_regular(os.stat(path).st_mode, path)  # noqa: PTH116 (a Path per picture takes as long as the reading)
        with open(path, "rb", buffering=0, opener=_open_without_waiting) as file:
            status = os.fstat(file.fileno())
            _check_regular(status.st_mode, path)
            data = _read_all(file, status.st_size, limits)
    except (OSError, ValueError) as error:
        raise _cannot_read(error) from None
    if not data:
        raise BadPicture("empty", "The file is empty (0 bytes).", "A picture.", "Restore or remove the file.")
    return data


def check_name(path: str | os.PathLike[str]) -> None:
    """Refuse a name that no table could hold."""
    try:
        name = os.fspath(path).encode("utf-8")
    except UnicodeEncodeError:
        name = b"\0"
    if b"\0" in name:
        raise BadPicture(
            "undecodable_name", "The file name is not valid UTF-8.", "A name that is text.", "Rename the file."
        )


def check_bytes(count: int, limits: Limits) -> None:
    """Refuse a file above the limit on bytes."""
    if count > limits.file_bytes:
        raise BadPicture(
            "too_many_bytes",
            f"The file has {count:,} bytes.",
            f"At most {limits.file_bytes:,}.",
            "Raise the limit (file_bytes) or shrink the picture.",
        )


def check_size(width: int, height: int, limits: Limits) -> None:
    """Refuse what the header announces, before a pixel is decoded."""
    if max(width, height) > limits.side:
        raise BadPicture(
            "side_too_long",
            f"A side is {max(width, height):,} pixels long.",
            f"At most {limits.side:,}.",
            "Cut the picture into tiles, or raise the limit (side).",
        )
    if width * height > limits.pixels:
        raise BadPicture(
            "too_many_pixels",
            f"The picture has {width:,} x {height:,} pixels.",
            f"At most {limits.pixels:,} in all.",
            "Shrink the picture, or raise the limit (pixels).",
        )


def shown(path: str | os.PathLike[str]) -> str:
    r"""The path as text that every file format can hold: a byte that is not UTF-8 becomes \xNN."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _read_all(file: RawIOBase, expected: int, limits: Limits) -> bytes:
    """To the end of the file, which may have moved since its size was asked for."""
    parts, count = [], 0
    check_bytes(expected, limits)
    while part := file.read(max(expected - count, 0) + 1):
        parts.append(part)
        count += len(part)
        check_bytes(count, limits)
    return b"".join(parts)


def _open_without_waiting(path: str, flags: int) -> int:
    # The file may have become a pipe since it was looked at. Windows has neither flag, and no pipes in folders.
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0))


def _check_regular(mode: int, path: str | os.PathLike[str]) -> None:
    if stat.S_ISDIR(mode):
        os.scandir(path).close()  # a folder that may not be listed is on a list in its own place; this says why
    if not stat.S_ISREG(mode):
        kinds = {stat.S_IFDIR: "directory", stat.S_IFIFO: "pipe", stat.S_IFSOCK: "socket"}
        kind = kinds.get(stat.S_IFMT(mode), "device")
        raise BadPicture("not_a_file", f"The path is a {kind}.", "A regular file.", "Leave it out of the list.")


def _cannot_read(error: OSError | ValueError) -> BadPicture:
    code = getattr(error, "errno", None)
    if code in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG):
        return BadPicture("missing", "There is no such file.", "A file.", "Check the path; was it moved or deleted?")
    if code == errno.ELOOP:
        return BadPicture("symlink_loop", "The link leads to itself.", "A file.", "Repair or remove the link.")
    return BadPicture("unreadable", f"The file cannot be read ({error}).", "A readable file.", "Check its permissions.")
