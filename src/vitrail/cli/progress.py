"""How far a command is: one line that changes on a terminal, a line every few seconds anywhere else. On stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TextIO

AFTER = 2.0  # seconds of work that nobody needs to be told about
EVERY = 5.0  # seconds between plain lines
REDRAW = 0.1  # seconds between changes of a line on a terminal
CLEAR = "\r\x1b[2K"


class Progress:
    """Called with how many of how many are done; the first call, before the work, says where it begins."""

    def __init__(self, what: str, out: TextIO | None) -> None:
        self.what, self.out = what, out
        self.live = out is not None and out.isatty()
        self.began = self.shown = time.monotonic()
        self.first: int | None = None
        self.drawn = False

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if self.first is None:
            self.first, self.began = done, now
        due = now - self.shown >= (REDRAW if self.live else EVERY)
        if self.out and due and now - self.began >= AFTER:
            line = told(self.what, done, total, now - self.began, self.first)
            self.out.write(f"{CLEAR}{line}" if self.live else f"{line}\n")
            self.out.flush()
            self.shown, self.drawn = now, self.live

    def say(self, line: str) -> None:
        """A line that stays."""
        if self.out:
            self.out.write(f"{CLEAR if self.drawn else ''}{line}\n")
            self.out.flush()
            self.drawn = False


@contextmanager
def progress(what: str = "pictures", *, quiet: bool = False) -> Iterator[Progress]:
    """Something to tell how far the work is; quiet shows nothing."""
    shown = Progress(what, None if quiet else sys.stderr)
    try:
        yield shown
    finally:
        if shown.drawn:
            sys.stderr.write(CLEAR)
            sys.stderr.flush()


def told(what: str, done: int, total: int, seconds: float, first: int = 0) -> str:
    """Done and total, how fast since the first, and the time that is left at this rate."""
    rate = (done - first) / max(seconds, 1e-9)
    if not rate:
        return f"{done:,}/{total:,} {what}"
    pace = f"{rate:,.1f}/s" if rate >= 1 else f"{1 / rate:,.0f} s each"
    return f"{done:,}/{total:,} {what}  {pace}  {timedelta(seconds=round((total - done) / rate))} left"
