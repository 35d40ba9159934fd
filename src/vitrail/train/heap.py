"""Memory that a step frees stays with the process, since the next step asks for as much again.

glibc hands large blocks back to the system as they are freed, and whoever asks again pays for every page: 360,000 page
faults for a step of B/16 on a CPU, where keeping them leaves 90,000 (docs/experiments.md). Elsewhere nothing is done.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Iterator
from contextlib import contextmanager

# mallopt(3): what is tuned, and how while training and afterwards. Afterwards is what a process that has freed a few
# large blocks comes to by itself; the thresholds it began with cannot be asked for.
TRIM_THRESHOLD, MMAP_THRESHOLD, MMAP_MAX = -1, -3, -4
NEVER, LARGEST = -1, 32 * 2**20
WHILE = {MMAP_MAX: 0, TRIM_THRESHOLD: NEVER}
AFTERWARDS = {MMAP_MAX: 65_536, MMAP_THRESHOLD: LARGEST, TRIM_THRESHOLD: 2 * LARGEST}


@contextmanager
def kept_memory() -> Iterator[None]:
    """Free memory is kept meanwhile, and given back at the end."""
    if platform.libc_ver()[0] != "glibc":
        yield
        return
    libc = ctypes.CDLL(None)
    tune(libc, WHILE)
    try:
        yield
    finally:
        tune(libc, AFTERWARDS)
        libc.malloc_trim(0)


def tune(libc: ctypes.CDLL, options: dict[int, int]) -> None:
    """One call for each; one that is refused changes nothing."""
    for option, value in options.items():
        libc.mallopt(option, value)
