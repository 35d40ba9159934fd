"""Timing on a noisy machine: contestants take turns in one run, and what counts is the ratio of neighbours."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Timing:
    """Seconds of each round, by contestant, in the order they took turns."""

    seconds: Mapping[str, list[float]]

    def median(self, name: str) -> float:
        return statistics.median(self.seconds[name])

    def speedup(self, name: str, over: str) -> tuple[float, float, float]:
        """How many times faster `name` is than `over`: median of the rounds' ratios, and their quartiles."""
        ratios = [slow / fast for fast, slow in zip(self.seconds[name], self.seconds[over], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        return middle, low, high


def interleave(contestants: Mapping[str, Callable[[], object]], rounds: int, warmups: int = 2) -> Timing:
    """Let everyone run once a round, after a few rounds that do not count."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(warmups + rounds):
        for name, run in contestants.items():
            start = time.perf_counter()
            run()
            if turn >= warmups:
                seconds[name].append(time.perf_counter() - start)
    return Timing(seconds)


def row(*cells: object) -> str:
    """A line of a Markdown table."""
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def table(header: list[str], rows: list[list[object]]) -> str:
    """A Markdown table."""
    return "\n".join([row(*header), row(*("---" for _ in header)), *(row(*cells) for cells in rows)])
