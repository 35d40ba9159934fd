"""What to expect of a run: what runs like it reached when we measured them (measured.toml), or that none was."""

from __future__ import annotations

import tomllib
from functools import lru_cache
from pathlib import Path

from vitrail.config import Frozen, build
from vitrail.train.config import TrainConfig
from vitrail.train.presets import Preset, Start
from vitrail.train.start import Plan

TABLE = Path(__file__).with_name("measured.toml")
NEAR = 3  # pictures and classes may differ by this factor


class Measured(Frozen, frozen=True, kw_only=True):
    """Some runs of ours that differ in the seed."""

    data: str
    pictures: int  # to train on
    classes: int
    start: Start
    mode: str
    preset: Preset
    seeds: int
    top1: tuple[float, float]  # lowest and highest of the seeds, in percent
    seconds: float
    command: str


@lru_cache
def table() -> tuple[Measured, ...]:
    """Every measurement; docs/experiments.md tells how they were made."""
    return tuple(build(Measured, row | {"top1": tuple(row["top1"])}) for row in tomllib.loads(TABLE.read_text())["run"])


def expectation(plan: Plan, preset: Preset) -> str:
    """One line about the most similar runs."""
    found = [one for one in table() if similar(one, plan, preset)]
    if not found:
        return "expected: unknown; no run of ours was like this one (docs/experiments.md)"
    nearest = min(found, key=lambda one: apart(one.pictures, len(plan.data.train)))
    low, high = nearest.top1
    return (
        f"expected: hard to say from other data; this preset reached {low:g} to {high:g}% top-1 on {nearest.data} "
        f"({nearest.pictures:,} pictures, {nearest.classes} classes, {nearest.seconds:.0f} s of one processor core)"
    )


def similar(one: Measured, plan: Plan, preset: Preset) -> bool:
    """Whether a measurement says something about a plan."""
    near = apart(one.pictures, len(plan.data.train)) <= NEAR and apart(one.classes, len(plan.data.classes)) <= NEAR
    return near and (one.start, one.preset, one.mode) == (plan.start, preset, plan.record("train", TrainConfig).mode)


def apart(one: int, other: int) -> float:
    """How many times larger the larger is."""
    return max(one, other) / max(min(one, other), 1)
