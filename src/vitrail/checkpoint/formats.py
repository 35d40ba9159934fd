"""Every format vitrail reads and writes, in one list: its tables, and the numbers its own software computes with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from vitrail.checkpoint import google, huggingface, jeonsworld, native, timm, torchvision
from vitrail.checkpoint.rules import Table


@dataclass(frozen=True)
class Format:
    """A family of files; `conventions` are config fields, `stem` fields of a hybrid's stem, that no tensor shows."""

    name: str
    tables: tuple[Table, ...]
    conventions: dict[str, Any] = field(default_factory=dict)
    stem: dict[str, Any] = field(default_factory=dict)


# docs/formats.md has the same numbers with their sources; the effect of each on logits is measured there.
EXACT = {"hidden_act": "gelu", "layer_norm_eps": 1e-6}
FORMATS = {
    form.name: form
    for form in (
        Format(
            "google",
            google.TABLES,
            {
                "hidden_act": "gelu_tanh",
                "layer_norm_eps": 1e-6,
                "position_resampling": "google",
                "initializer": "google",
            },
        ),
        Format(
            "huggingface",
            huggingface.TABLES,
            {"hidden_act": "gelu", "layer_norm_eps": 1e-12, "position_resampling": "hf", "initializer": "hf"},
            {"group_norm_eps": 1e-5, "standardization": "var_plus", "standardization_eps": 1e-8},
        ),
        Format(
            "timm",
            timm.TABLES,
            EXACT | {"position_resampling": "timm", "initializer": "timm"},
            {"group_norm_eps": 1e-5, "standardization": "var_plus", "standardization_eps": 1e-8},
        ),
        Format(
            "torchvision",
            torchvision.TABLES,
            EXACT | {"position_resampling": "torchvision", "initializer": "torchvision"},
        ),
        Format(
            "jeonsworld",
            jeonsworld.TABLES,
            EXACT | {"position_resampling": "google", "initializer": "google"},
            {"standardization": "var_plus", "padding": "symmetric", "shortcut_groups": "per_channel"},
        ),
        Format("vitrail", native.TABLES),
    )
}


def format_of(table: Table) -> Format | None:
    """The format a table belongs to; None for a table a user brought."""
    return next((form for form in FORMATS.values() if table in form.tables), None)


def table_named(name: str) -> Table | None:
    """The table of this name."""
    return next((table for form in FORMATS.values() for table in form.tables if table.name == name), None)
