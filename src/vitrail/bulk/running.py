"""A model and how it is to be run: what every verb that answers for many pictures is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from vitrail.bulk.settings import EngineConfig, PictureConfig
from vitrail.engines.base import Engine, Output
from vitrail.engines.cache import stat_of
from vitrail.engines.for_model import ModelLike, engine_for, files_behind, name_of


@dataclass(frozen=True)
class Running:
    """A model by name or in memory, fields to load it with, an engine, and how files become pixels."""

    model: ModelLike
    fields: Mapping[str, Any] = field(default_factory=dict)
    engine: EngineConfig = field(default_factory=EngineConfig)
    pictures: PictureConfig = field(default_factory=PictureConfig)
    say: Callable[[str], None] | None = None

    def open(self, output: Output = "logits", *, batch: int = 0) -> Engine:
        """The engine; `batch` where another number of pictures comes at once than the settings say."""
        return engine_for(
            self.model,
            self.fields,
            say=self.say,
            engine=self.engine.name,
            precision=self.engine.precision,
            outputs=(output,),
            depth=self.pictures.depth,
            batch=batch or self.engine.batch_size,
            threads=self.engine.threads or None,
        )

    def identity(self) -> dict[str, Any]:
        """All that an answer depends on, as plain JSON: rows of one table have it in common."""
        files = files_behind(self.model)
        known = {
            "model": name_of(self.model),
            "weights": stat_of(files) if files else weights_of(self.model),
            "fields": {name: repr(value) for name, value in self.fields.items()},
            "engine": self.engine.name,
            "precision": self.engine.precision,
        }
        reading = msgspec.to_builtins(self.pictures)
        del reading["workers"]  # changes no result
        return known | {f"data.{name}": value for name, value in reading.items()}


def weights_of(model: Any) -> str:
    """What makes a model in memory this model."""
    from vitrail.engines.choose import identity

    return "" if isinstance(model, str) or hasattr(model, "__fspath__") else identity(model)
