"""The other processes of a run, if there are any: who does what, and sums over all."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class World:
    """This process among those that train together."""

    rank: int = 0
    size: int = 1


ALONE = World()
