"""Which table a set of tensors was written by, told from keys and shapes alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from vitrail.checkpoint.formats import FORMATS, Format, format_of
from vitrail.checkpoint.rules import Key, Plan, Table, compiled, plan, skeleton
from vitrail.checkpoint.shapes import PATCH
from vitrail.checkpoint.transforms import Sizes
from vitrail.errors import CheckpointError


@dataclass(frozen=True)
class Match:
    """A table that reads a set of tensors, the prefix in front of their names, and what it makes of each."""

    table: Table
    prefix: str
    plan: Plan
    unreadable: tuple[str, ...] = ()  # sentences about shapes the table did not expect

    @property
    def format(self) -> Format | None:
        """The format the table belongs to."""
        return format_of(self.table)

    @property
    def complete(self) -> bool:
        """Whether the table explains every key."""
        return not (self.plan.unused or self.plan.incomplete or self.unreadable) and bool(self.plan.steps)

    @property
    def misfit(self) -> tuple[int, int]:
        """How badly it fits: keys without an explanation, then (fewer is worse) tensors it makes."""
        return len(self.plan.unused) + len(self.plan.incomplete) + len(self.unreadable), -len(self.plan.steps)


def detect(tensors: Mapping[str, Tensor], tables: Iterable[Table] | None = None, sizes: Sizes | None = None) -> Match:
    """The table that explains most keys, whether or not it explains all."""
    shapes = {key: torch.empty_like(tensor, device="meta") for key, tensor in tensors.items()}
    every = tuple(table for form in FORMATS.values() for table in form.tables) if tables is None else tuple(tables)
    best: Match | None = None
    for table, prefix in _candidates(every, shapes):
        match = _matched(table, prefix, shapes, sizes or Sizes())
        if best is None or match.misfit < best.misfit:
            best = match
        if best.complete:
            break
    assert best is not None
    return best


def _candidates(tables: tuple[Table, ...], tensors: Mapping[str, Tensor]) -> list[tuple[Table, str]]:
    """Tables with prefixes: those whose patch projection is there; if none has it, those that know most keys."""
    prefixes = {prefix for table in tables for prefix in table.prefixes}
    there = {prefix for prefix in prefixes if any(key.startswith(prefix) for key in tensors)}
    choices = [(table, prefix) for table in tables for prefix in table.prefixes if prefix in there]
    likely = [(table, prefix) for table, prefix in choices if _patches(table, prefix) in tensors]
    skeletons = {skeleton(key): key for key in tensors}

    def strangers(choice: tuple[Table, str]) -> tuple[int, int]:
        index = compiled(*choice)
        unknown = [key for shape, key in skeletons.items() if not index.knows(shape)]
        ignored = sum(index.reason(key) is not None for key in unknown)
        return len(unknown) - ignored, ignored

    return sorted(likely or choices, key=strangers)[:24]  # a few dozen skeletons stand for hundreds of keys


@lru_cache(maxsize=512)
def _patches(table: Table, prefix: str) -> str:
    """What the patch projection is called: the one weight every model has."""
    keys = [rule.theirs[0] for rule in table.rules if rule.ours == PATCH]
    return Key.parse(keys[0], prefix).text if keys else ""


def _matched(table: Table, prefix: str, shapes: Mapping[str, Tensor], sizes: Sizes) -> Match:
    planned = plan(table, shapes, prefix)
    unreadable = []
    for step in planned.steps:
        try:
            step.run(shapes, sizes)
        except (CheckpointError, RuntimeError) as error:
            unreadable.append(error.found if isinstance(error, CheckpointError) else f"'{step.ours}': {error}")
    return Match(table, prefix, planned, tuple(unreadable))
