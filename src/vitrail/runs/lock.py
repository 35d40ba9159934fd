"""One process at a time: a lock that the system lets go of when its holder is killed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vitrail.errors import EnvironmentProblem, UsageError


@contextmanager
def held(path: Path, taken: str) -> Iterator[None]:
    """Hold this file; where another process does, `taken` says so."""
    try:
        file = path.open("ab")
    except OSError as error:
        raise EnvironmentProblem(
            f"{path} cannot be opened ({error.strerror}).", "A folder that can be written to.", "Free some space."
        ) from None
    with file:
        try:
            _lock(file.fileno())
        except OSError:
            raise UsageError(taken, "One process at a time.", "Wait for it, or stop it.") from None
        yield


def _lock(descriptor: int) -> None:
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
