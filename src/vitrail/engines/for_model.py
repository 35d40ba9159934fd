"""An engine for whatever stands for a model: a checkpoint by name, or a model in memory. A known one needs no torch."""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from vitrail.checkpoint.place import files_of, locate
from vitrail.engines.base import Engine
from vitrail.engines.cache import stat_of
from vitrail.engines.choose import open_engine

if TYPE_CHECKING:
    from vitrail.model.vit import VisionTransformer

ModelLike: TypeAlias = "VisionTransformer | str | os.PathLike[str]"
Key: TypeAlias = tuple[object, ...]

_last: dict[str, tuple[Key, Engine]] = {}  # the engine opened last, for who asks picture by picture


def engine_for(model: ModelLike, fields: Mapping[str, Any] | None = None, *, say: Any = None, **asked: Any) -> Engine:
    """The engine that answers for a model; `fields` are config fields to load a checkpoint with.

    The last one is kept: asking again for the same unchanged model and the same `asked` gives the same engine.
    """
    key = (*_state_of(model), tuple(sorted((fields or {}).items(), key=str)), *sorted(asked.items()))
    kept = _last.get("engine")
    if kept and kept[0] == key:
        return kept[1]
    _last.clear()  # before the next one takes as much memory
    engine = _opened(model, dict(fields or {}), asked | ({"say": say} if say else {}))
    _last["engine"] = key, engine
    return engine


def name_of(model: ModelLike) -> str:
    """What a table or a report calls the model."""
    if isinstance(model, str | os.PathLike):
        return os.fspath(model)
    origin = getattr(model, "origin", None)
    return origin.path if origin else "a model in memory"


def files_behind(model: ModelLike) -> list[Path]:
    """The files a named model is read from; none for a model in memory, or where there is nothing of that name."""
    if not isinstance(model, str | os.PathLike):
        return []
    place = locate(os.fspath(model))
    return files_of(place) if place.exists() else []


def _opened(model: ModelLike, fields: dict[str, Any], asked: dict[str, Any]) -> Engine:
    if not isinstance(model, str | os.PathLike):
        return open_engine(model, **asked)

    def load() -> VisionTransformer:
        from vitrail.checkpoint import load

        return load(os.fspath(model), **fields)

    # With other fields it is another model than the one these files were known for.
    return open_engine(load, files=[] if fields else files_behind(model), **asked)


def _state_of(model: ModelLike) -> Key:
    """What changes when the model does: the stat of its files, or where its tensors are and how often they changed."""
    if isinstance(model, str | os.PathLike):
        return os.fspath(model), stat_of(files_behind(model))
    tensors = model.state_dict(keep_vars=True).values()
    versions = tuple((tensor.data_ptr(), 0 if tensor.is_inference() else tensor._version) for tensor in tensors)
    return weakref.ref(model), model.preprocess, tuple(model.labels), versions
