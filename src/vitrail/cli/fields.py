"""Config fields given as --set KEY=VALUE to commands that read a checkpoint."""

from __future__ import annotations

from typing import Any

from vitrail.settings import parse_assignment


def parse_fields(assignments: tuple[str, ...]) -> dict[str, Any]:
    """Config fields by name; `model.` in front of one is understood."""
    pairs = (parse_assignment(text) for text in assignments)
    return {key.removeprefix("model."): value for key, value in pairs}
