"""An open weight file: where it is, how long it is, and reads that never come back short."""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from vitrail.errors import CheckpointError

if TYPE_CHECKING:
    import torch

# What to do about a file: that makes no sense, that is sound and no weights of ours, that changes meanwhile.
FETCH = "The file is incomplete or was changed on its way: fetch or copy it again."
ANOTHER = "Check that this is the right file, and where it comes from."
WAIT = "Wait until it is written, and load it again."
PARALLEL = hasattr(os, "preadv")  # reads that share no position, so several threads may read one file


@dataclass(frozen=True, slots=True)
class Source:
    """A regular file held open, so that what was checked is what is read, whatever happens to its name."""

    path: Path
    file: BinaryIO
    size: int

    def read(self, offset: int, count: int) -> bytes:
        """Exactly `count` bytes from `offset`; the caller has checked that they lie inside the file."""
        content = bytearray(count)
        self.readinto(offset, memoryview(content))
        return bytes(content)

    def readinto(self, offset: int, buffer: memoryview) -> None:
        """Fill the buffer from `offset`."""
        done = 0
        try:
            while done < len(buffer):
                count = self._some(offset + done, buffer[done:])
                if not count:
                    raise self.refuse(
                        "became shorter while it was read.", "Nobody writes to a file being loaded.", WAIT
                    )
                done += count
        except OSError as error:
            raise self.refuse(
                f"cannot be read: {error.strerror or error}.", "", "Check the disk and the permissions."
            ) from error

    def _some(self, offset: int, buffer: memoryview) -> int:
        if PARALLEL:
            return os.preadv(self.file.fileno(), [buffer], offset)
        self.file.seek(offset)
        return int(self.file.readinto(buffer))  # type: ignore[attr-defined]  # raw file; BinaryIO lacks it

    def map(self, offset: int, count: int) -> torch.Tensor:
        """These bytes as a view of the file; what is written to it stays in memory."""
        import torch  # not at the top: where a model lies can be asked without it

        page = offset - offset % mmap.ALLOCATIONGRANULARITY
        try:
            view = mmap.mmap(self.file.fileno(), offset - page + count, access=mmap.ACCESS_COPY, offset=page)
        except ValueError as error:  # more than the file has
            raise self.refuse(
                "became shorter while it was read.", "Nobody writes to a file being loaded.", WAIT
            ) from error
        return torch.frombuffer(view, dtype=torch.uint8, count=count, offset=offset - page)

    def maps_allowed(self) -> int:
        """How many maps of this file may be made.

        Mapping is several times faster than copying (1.2 GB: 0.18 s against 1.13). But if somebody cuts a mapped file
        short, the process that reads it is killed (SIGBUS), and if somebody writes into it, the model changes after it
        was checked. So a file is mapped only when it belongs to us or to root, nobody else may write to it, and it does
        not lie in a folder everybody may write to. Each map holds a file descriptor (Python's mmap keeps one); we take
        a quarter of those that are left.
        """
        if os.name != "posix":
            return 0  # Windows cannot replace a file while it is mapped: saving over it would fail
        try:
            file, folder = os.fstat(self.file.fileno()), self.path.resolve().parent.stat()
        except OSError:  # the folder is gone
            return 0
        ours = file.st_uid in (0, os.geteuid())
        open_to_others = file.st_mode & (stat.S_IWGRP | stat.S_IWOTH) or folder.st_mode & stat.S_IWOTH
        return _descriptors_left() // 4 if ours and not open_to_others else 0

    def refuse(
        self, reason: str, expected: str = "", fix: str = FETCH, *, tensor: str | None = None
    ) -> CheckpointError:
        """The error that names this file, the tensor and the reason; the caller raises it."""
        where = f"{shown(str(self.path), 4096)}: " + (f"tensor '{shown(tensor)}' " if tensor is not None else "")
        return CheckpointError(where + reason, expected, fix)


@dataclass(slots=True)
class Cursor:
    """Reads on from a place in the file."""

    source: Source
    offset: int

    def fill(self, buffer: memoryview) -> None:
        """The next bytes."""
        self.source.readinto(self.offset, buffer)
        self.offset += len(buffer)


def _descriptors_left() -> int:
    import resource  # POSIX only

    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return (4096 if allowed == resource.RLIM_INFINITY else min(allowed, 4096)) - sum(
        1 for _ in Path("/dev/fd").iterdir()
    )


def shown(text: str, limit: int = 120) -> str:
    """Text from an untrusted file, made fit for one line of a message."""
    safe = text[:limit]
    if not safe.isprintable():
        safe = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in safe)
    return safe if len(text) <= limit else f"{safe}… ({len(text):,} characters)"


@contextmanager
def opened(path: Path) -> Iterator[Source]:
    """The file at this path, if it is a regular file; a pipe, device or directory is refused without waiting."""
    try:
        # O_NONBLOCK: opening a FIFO nobody writes to would otherwise wait for ever.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise CheckpointError(
            f"{shown(str(path), 4096)} cannot be opened: {reason}.",
            "Weights are a file this user can read.",
            "Check the path and its permissions.",
        ) from error
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        status = os.fstat(descriptor)
        source = Source(Path(path), file, status.st_size)
        if not stat.S_ISREG(status.st_mode):
            raise source.refuse("is not a regular file.", "Weights are read from a regular file.", ANOTHER)
        yield source
