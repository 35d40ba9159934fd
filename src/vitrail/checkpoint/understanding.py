"""What is known about a model so far: config fields, what the caller wants otherwise, what was taken for granted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from vitrail.config import ViTConfig, build


@dataclass
class Understanding:
    """The model as it is in the file, what the caller wants otherwise, and what was taken for granted."""

    fields: dict[str, Any]
    wanted: dict[str, Any] = field(default_factory=dict)
    assumptions: list[str] = field(default_factory=list)

    def assume(self, name: str, value: Any, why: str) -> None:
        """Take a value for granted, and say so."""
        self.fields[name] = value
        self.assumptions.append(f"{name}={shown(value)}: {why}")

    @property
    def config(self) -> ViTConfig:
        """The config, checked."""
        return build(ViTConfig, self.fields)


def shown(value: Any) -> str:
    """A value in a sentence."""
    if isinstance(value, tuple) and len(value) == 2:
        return f"{value[0]} x {value[1]}"
    return f"{value:g}" if isinstance(value, float) else str(value)
