"""A run's config: its sections, and the TOML file that makes the same run again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from vitrail.config import Frozen, Preprocess, ViTConfig
from vitrail.errors import UsageError, did_you_mean
from vitrail.images.augment import Augment
from vitrail.settings import Layer, Settings, read_toml, resolve
from vitrail.train.config import DataConfig, TrainConfig

SECTIONS: Mapping[str, type[Frozen]] = {
    "model": ViTConfig,
    "preprocess": Preprocess,
    "train": TrainConfig,
    "data": DataConfig,
    "augment": Augment,
}
OWN = {name: kind for name, kind in SECTIONS.items() if name not in ("model", "preprocess")}


# What may be changed in a run that goes on: nothing that another order of pictures or another shape would follow from.
CHANGEABLE = (
    *("train.epochs", "train.lr", "train.min_lr", "train.schedule", "train.warmup", "train.weight_decay", "train.clip"),
    *("train.patience", "train.metric", "train.on_nonfinite", "train.max_bad", "train.keep_checkpoints"),
    *("train.checkpoint_every", "train.checkpoint_minutes", "train.report", "train.track", "data.path", "data.workers"),
)


def read_config(path: Path, changes: Sequence[Layer] = ()) -> Settings:
    """A run's config.toml, with changes to what may change."""
    for layer in changes:
        for key in layer.values:
            if key not in CHANGEABLE:
                raise UsageError(
                    f"{layer.origin} sets {key}, which a run that goes on cannot change.",
                    did_you_mean(key, CHANGEABLE),
                    "Start a new run from the weights of this one.",
                )
    return resolve(SECTIONS, [Layer(str(path), read_toml(path, SECTIONS)), *changes])


def to_toml(records: Mapping[str, Frozen], heading: str) -> str:
    """Records as a config file. What is None is left out, which says the same."""
    lines = [f"# {line}" for line in heading.splitlines()]
    for name, record in records.items():
        lines += _table(name, msgspec.to_builtins(record))
    return "\n".join(lines) + "\n"


def _table(name: str, fields: Mapping[str, Any]) -> list[str]:
    plain = {field: value for field, value in fields.items() if value is not None and not isinstance(value, Mapping)}
    lines = ["", f"[{name}]", *(f"{field} = {_value(value)}" for field, value in plain.items())]
    for field, value in fields.items():
        if isinstance(value, Mapping):
            lines += _table(f"{name}.{field}", value)
    return lines


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False)  # true, 12, "text": the same in TOML
