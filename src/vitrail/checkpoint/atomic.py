"""Writes a file so that its name always means a whole file: the old one or the new one."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from vitrail.errors import EnvironmentProblem


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write; it takes the name `path` only when it is complete and on the disk."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync_directory(path.parent)
    except OSError as error:
        raise EnvironmentProblem(
            f"{path} could not be written: {error.strerror or error}.",
            "The folder exists, is writable and has room.",
            "Nothing was changed: free some space or choose another place.",
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _sync_directory(folder: Path) -> None:
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
