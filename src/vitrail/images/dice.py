"""Random numbers by name. No generator is carried along: a `Dice` answers each named question from its key alone.

So a picture looks the same whichever worker makes it, in whatever order, before a crash or after it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Dice:
    """The same key and name always give the same number, in any order, on any machine."""

    key: tuple[int, ...]

    def bits(self, name: str) -> int:
        """64 random bits."""
        digest = hashlib.blake2b(name.encode(), key=b"".join(k.to_bytes(8, "little") for k in self.key), digest_size=8)
        return int.from_bytes(digest.digest(), "little")

    def uniform(self, name: str, low: float = 0.0, high: float = 1.0) -> float:
        """From `low` up to `high`."""
        return low + (high - low) * (self.bits(name) >> 11) / 2**53

    def below(self, name: str, count: int) -> int:
        """A whole number from 0 to count - 1."""
        return self.bits(name) * count >> 64

    def chance(self, name: str, probability: float) -> bool:
        """True so often."""
        return probability > 0 and self.uniform(name) < probability

    def sign(self, name: str) -> int:
        """1 or -1."""
        return 1 - 2 * (self.bits(name) & 1)

    def beta(self, name: str, alpha: float) -> float:
        """From a symmetric beta distribution: small alphas give mostly 0 or 1, 1 gives anything between."""
        return float(self.stream(name).beta(alpha, alpha))

    def stream(self, name: str) -> np.random.RandomState:
        """Many numbers at once. NumPy promises never to change what a RandomState gives."""
        return np.random.RandomState(self.bits(name) & 0xFFFFFFFF)
