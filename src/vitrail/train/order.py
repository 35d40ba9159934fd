"""Which pictures a step sees: a function of (seed, epoch, step), and of nothing that happened before.

A permutation made by sorting hashes needs no generator, so its result cannot depend on a library's version, on
workers, on restarts or on how many processes share the work: rank r takes every picture whose place is its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vitrail.images.dice import Dice


@dataclass(frozen=True, slots=True)
class Key:
    """One picture of one epoch."""

    epoch: int
    index: int  # in the list of training pictures


@dataclass(frozen=True)
class Order:
    """The order of `count` pictures over any number of epochs."""

    count: int
    batch_size: int
    seed: int

    @property
    def steps_per_epoch(self) -> int:
        """Steps that see every picture once; the last one may see fewer than the others."""
        return -(-self.count // self.batch_size)

    def epoch(self, epoch: int) -> NDArray[np.int64]:
        """Every picture once, shuffled."""
        return shuffled(self.count, Dice((self.seed, epoch)).bits("order"))

    def steps(self, start: int, stop: int) -> Iterator[tuple[int, list[Key]]]:
        """Step numbers (counted over all epochs) and the pictures each sees."""
        order, known = self.epoch(0), 0
        for step in range(start, stop):
            epoch, within = divmod(step, self.steps_per_epoch)
            if epoch != known:
                order, known = self.epoch(epoch), epoch
            places = order[within * self.batch_size : (within + 1) * self.batch_size]
            yield step, [Key(epoch, int(index)) for index in places]


def shuffled(count: int, key: int) -> NDArray[np.int64]:
    """The numbers 0 to count - 1 in an order that depends on the key."""
    return np.argsort(scrambled(np.arange(count, dtype=np.uint64), key), kind="stable")


def scrambled(numbers: NDArray[np.uint64], key: int) -> NDArray[np.uint64]:
    """64-bit hashes of numbers (the finaliser of SplitMix64, Steele et al. 2014), different for every key."""
    mixed = numbers * np.uint64(0x9E3779B97F4A7C15) + np.uint64(key)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def micro_batches(keys: list[Key], size: int, rank: int = 0, world: int = 1) -> list[list[Key]]:
    """A step's pictures in portions of one device: rank r has the r-th of `world` equal slices.

    Every rank has as many portions; those of the last ones may be empty.
    """
    share = -(-len(keys) // world)
    mine = keys[rank * share : (rank + 1) * share]
    return [mine[start : start + size] for start in range(0, max(share, 1), size)]
