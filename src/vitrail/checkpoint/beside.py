"""What is said about a model beside its weights: by config.json, preprocessor_config.json, and by the caller.

Files come from anywhere, so whatever they hold ends in a value of the right type or in an error that names the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, get_type_hints

import msgspec
import numpy as np

from vitrail.checkpoint import hf_config, preprocess, timm_config
from vitrail.checkpoint.files import Found
from vitrail.config import Preprocess, ViTConfig, as_pair
from vitrail.errors import CheckpointError, ConfigError, did_you_mean

NONSENSE = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, ConfigError, msgspec.MsgspecError)


@contextmanager
def readable(found: Found, file: str = "config.json") -> Iterator[None]:
    """Nonsense in a file beside the weights is that file's fault, and said so."""
    try:
        yield
    except NONSENSE as error:
        reason = error.found if isinstance(error, ConfigError) else f"{type(error).__name__}: {error}"
        raise CheckpointError(
            f"{found.path}: what {file} says makes no sense. {reason}",
            "A config as transformers, timm or vitrail write it.",
            f"Correct {file}, or remove it and say what is missing with --set.",
        ) from error


def fields_asked_for(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Config fields as a caller gives them: an int for a square, `resnet.padding` for a field of the stem's."""
    fields: dict[str, Any] = {}
    for name, value in asked.items():
        field, _, inner = name.partition(".")
        fields[field] = {**fields.get(field, {}), inner: value} if inner else value
    return {name: typed(name, value) for name, value in fields.items()}


def typed(name: str, value: Any) -> Any:
    """A config field's value, checked against its type."""
    if name not in _types():
        raise ConfigError(f"There is no config field {name!r}.", did_you_mean(name, _types()), "docs/guide/config.md")
    if name == "resnet" and isinstance(value, dict):
        return value  # a stem is put together field by field, and checked then
    value = as_pair(value) if name in ("image_size", "patch_size", "position_grid") else value
    try:
        return msgspec.convert(value, _types()[name])
    except msgspec.ValidationError as error:
        raise ConfigError(f"{name} is {value!r}.", f"{error}.", f"Set {name} to such a value.") from None


@lru_cache(maxsize=1)
def _types() -> dict[str, Any]:
    return get_type_hints(ViTConfig)


def stated_fields(found: Found) -> dict[str, Any]:
    """Config fields that the files beside the weights state."""
    with readable(found):
        config = found.config
        if timm_config.is_timm(config):
            stated = timm_config.fields(config)
            stated.pop("num_classes", None)  # the classifier's shape says it
        else:
            stated = hf_config.fields(config) if config.get("model_type") != "vitrail" else {}
        block = found.block.get("config") or {}
        return {name: typed(name, value) for name, value in {**stated, **block}.items()}


def stated_preprocess(found: Found, config: ViTConfig) -> Preprocess | None:
    """How pictures are to be prepared, where something beside the weights says so."""
    block = found.block.get("preprocess")
    if block is not None:
        with readable(found):
            prepared = msgspec.convert({"size": config.image_size, **block}, Preprocess)
        refuse_two_normalisations(found, prepared)
        return prepared
    if found.preprocessor is not None:
        with readable(found, "preprocessor_config.json"):
            return preprocess.from_hugging_face(found.preprocessor, config)
    if timm_config.is_timm(found.config):
        with readable(found):
            return preprocess.from_timm(found.config.get("pretrained_cfg") or found.config, config)
    return None


def refuse_two_normalisations(found: Found, prepared: Preprocess) -> None:
    """Raise where preprocessor_config.json was edited and the vitrail block, which is what counts, was not."""
    for name, ours in {"image_mean": prepared.mean, "image_std": prepared.std}.items():
        theirs = (found.preprocessor or {}).get(name)
        with readable(found, "preprocessor_config.json"):
            same = not isinstance(theirs, list) or np.allclose(np.array(theirs, float), ours, rtol=1e-5)
        if not same:
            raise CheckpointError(
                f"preprocessor_config.json has {name} {theirs}; the vitrail block of config.json has {list(ours)}.",
                "The same in both: a wrong one costs more accuracy than anything else.",
                "Correct the one that is wrong, or remove preprocessor_config.json.",
            )


def stated_labels(found: Found, config: ViTConfig) -> list[str] | None:
    """The names of the classes, where something beside the weights has them."""
    block = found.block.get("labels")
    if isinstance(block, list) and len(block) == config.num_classes:
        return [str(label) for label in block]
    with readable(found):
        if timm_config.is_timm(found.config):
            return timm_config.labels(found.config, config.num_classes)
        return hf_config.labels(found.config, config.num_classes)
