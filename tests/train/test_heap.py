"""Does memory stay with the process while it trains, and go back afterwards?"""

from __future__ import annotations

import platform
import resource
from pathlib import Path

import pytest
import torch

from vitrail.train.heap import kept_memory

BLOCK = 48 * 2**20  # larger than what glibc would keep by itself
PAGES = BLOCK // resource.getpagesize()

glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told to keep memory")


def faults_of_asking_again() -> int:
    """Page faults of a block, once such a block has been used and freed."""
    torch.zeros(BLOCK, dtype=torch.uint8)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.zeros(BLOCK, dtype=torch.uint8)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@glibc
def test_a_block_that_was_freed_is_used_again_without_page_faults() -> None:
    with kept_memory():
        assert faults_of_asking_again() < PAGES / 10


@glibc
def test_afterwards_the_memory_goes_back() -> None:
    with kept_memory():
        torch.ones(BLOCK, dtype=torch.uint8)
        held = resident()
    assert held - resident() > BLOCK / 2


def test_an_error_inside_is_passed_on() -> None:
    with pytest.raises(ValueError, match="inside"), kept_memory():
        raise ValueError("inside")
