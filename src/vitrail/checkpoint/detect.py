"""Which table a set of tensors was written by, told from keys and shapes alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from vitrail.checkpoint.formats import FORMATS, Format, format_of
from vitrail.checkpoint.rules import Plan, Table, compiled, plan, skeleton
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
    """Tables with prefixes, those first that know most of the skeletons (a few dozen, where keys are hundreds)."""
    skeletons = {skeleton(key): key for key in tensors}
    ranked: list[tuple[int, int, int, Table, str]] = []
    for table in tables:
        for prefix in table.prefixes:
            if prefix and not any(key.startswith(prefix) for key in tensors):
                continue
            index = compiled(table, prefix)
            strangers = sum(not index.knows(shape) and index.reason(key) is None for shape, key in skeletons.items())
            ignored = sum(index.reason(key) is not None for key in skeletons.values())
            ranked.append((strangers, ignored, len(ranked), table, prefix))
    ranked.sort(key=lambda item: item[:3])
    return [(table, prefix) for *_, table, prefix in ranked[:24]]


def _matched(table: Table, prefix: str, shapes: Mapping[str, Tensor], sizes: Sizes) -> Match:
    planned = plan(table, shapes, prefix)
    unreadable = []
    for step in planned.steps:
        try:
            step.run(shapes, sizes)
        except (CheckpointError, RuntimeError) as error:
            unreadable.append(error.found if isinstance(error, CheckpointError) else f"'{step.ours}': {error}")
    return Match(table, prefix, planned, tuple(unreadable))
