"""SIGTERM and SIGINT: noticed at once, acted on between two portions of work.

The handler sets a flag and nothing else. Whoever can stop cleanly asks `check`. A second signal ends the process
at once without touching a file, which is safe at any moment: what is on the disk is always whole.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

CAUGHT = (signal.SIGTERM, signal.SIGINT)


class Interrupted(BaseException):
    """A signal asked the run to end; `number` says which."""

    def __init__(self, number: int) -> None:
        super().__init__(f"signal {number}")
        self.number = number

    def __reduce__(self) -> tuple[type[Interrupted], tuple[int]]:
        return type(self), (self.number,)  # as it is told to other processes


class Signals:
    """Whether the run has been asked to end."""

    def __init__(self) -> None:
        self.number = 0

    def check(self) -> None:
        """Raise Interrupted if it has."""
        if self.number:
            raise Interrupted(self.number)

    def handle(self, number: int, _frame: FrameType | None) -> None:
        """Called by the system, anywhere."""
        if self.number:
            os._exit(128 + number)
        self.number = number


@contextmanager
def watched(signals: Signals) -> Iterator[None]:
    """Signals caught for a while; the handlers of before come back. Only a main thread can catch any."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signals.handle) for number in CAUGHT}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
