"""Does memory stay with the process while it trains, and go back afterwards?"""

from __future__ import annotations

import platform
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from vitrail.train.heap import kept_memory

BLOCK = 48 * 2**20  # larger than what glibc would keep by itself
PAGES = BLOCK // resource.getpagesize()

glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told to keep memory")


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


FAULTS = """
import resource, torch
from vitrail.train.heap import kept_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.zeros({block}, dtype=torch.uint8)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print(faults(), faults())
with kept_memory():
    print(faults(), faults())
"""


@glibc
def test_a_block_that_was_freed_is_used_again_without_page_faults() -> None:
    # In a process of its own: here other tests have left holes and settings in the heap.
    said = subprocess.run(
        [sys.executable, "-c", FAULTS.format(block=BLOCK)], capture_output=True, text=True, check=True
    )
    (_, again), (first, kept) = (map(int, line.split()) for line in said.stdout.splitlines())
    assert min(again, first) > PAGES / 2
    assert kept < PAGES / 10


@glibc
def test_afterwards_the_memory_goes_back() -> None:
    with kept_memory():
        torch.ones(BLOCK, dtype=torch.uint8)
        held = resident()
    assert held - resident() > BLOCK / 2


def test_an_error_inside_is_passed_on() -> None:
    with pytest.raises(ValueError, match="inside"), kept_memory():
        raise ValueError("inside")
