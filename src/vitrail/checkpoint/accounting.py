"""Every key accounted for: what no row explains and what no tensor gives, side by side."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from vitrail.checkpoint.detect import Match
from vitrail.checkpoint.rules import compiled
from vitrail.checkpoint.source import shown
from vitrail.errors import CheckpointError

SHOWN = 12  # lines per side


def problems(
    match: Match, theirs: Mapping[str, Tensor], state: Mapping[str, Tensor], expected: Mapping[str, Tensor]
) -> list[str]:
    """One line for each key that does not add up: ours with >, theirs with <."""
    lines = [f"< {shown(key)} {list(theirs[key].shape)}: no row explains it" for key in match.plan.unused]
    lines += [f"< {sentence}" for sentence in match.unreadable]
    lines += [
        f"> {key} lacks {', '.join(shown(part) for part in absent)}" for key, absent in match.plan.incomplete.items()
    ]
    lines += [
        f"> {key} {list(tensor.shape)}: {_sources(match, key)} not there"
        for key, tensor in expected.items()
        if key not in state and key not in match.plan.incomplete
    ]
    lines += [
        f"> {key} {list(expected[key].shape)}: {_sources(match, key)} makes {list(tensor.shape)}"
        for key, tensor in state.items()
        if key in expected and expected[key].shape != tensor.shape
    ]
    return lines + [
        f"< {_sources(match, key)} makes {key}, which this model has not" for key in state.keys() - expected.keys()
    ]


def _sources(match: Match, ours: str) -> str:
    """Their keys for one of ours, as they would be called."""
    hit = compiled(match.table, match.prefix).find_ours(ours)
    if hit is None:
        return f"a key that '{match.table.name}' has not,"
    row, slots = hit
    return ", ".join(key.fill(slots) for key in row.theirs)


def refuse(path: object, match: Match, lines: list[str], reason: str = "") -> CheckpointError:
    """The error that shows both sides; the caller raises it."""
    unused, total = len(match.plan.unused), len(match.plan.unused) + sum(len(step.sources) for step in match.plan.steps)
    sides = [[line for line in lines if line.startswith(mark)] for mark in "<>"]
    body = [
        line
        for side in sides
        for line in (*side[:SHOWN], *([f"  … {len(side) - SHOWN} more"] if len(side) > SHOWN else []))
    ]
    known = bool(match.plan.steps) and unused * 2 < total
    return CheckpointError(
        "\n".join([f"{path} does not add up (< theirs, > ours):", *body, *([reason] if reason else [])]),
        f"The nearest known format is '{match.table.name}', which explains {total - unused} of {total} keys.",
        "Check that the file is complete and belongs to its config."
        if known
        else f"Bring rules of your own (docs/formats.md); a draft: vitrail inspect --propose-rules {path}",
    )
