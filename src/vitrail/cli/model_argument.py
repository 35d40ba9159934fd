"""MODEL, wherever a command takes one: a name or a checkpoint, changed by --config, --set and flags."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitrail.config import ViTConfig
from vitrail.settings import Layer, Settings, resolve, stored, user_layers

if TYPE_CHECKING:
    from vitrail.model.vit import VisionTransformer

SECTIONS = {"model": ViTConfig}
DOCUMENTED = {"representation_size": 768}  # ViT-B/16 with the pooler of the documents vitrail started from


def model_from_arguments(
    model: str | None, flags: Mapping[str, Any], config: Path | None, assignments: tuple[str, ...]
) -> tuple[Settings, Callable[..., VisionTransformer]]:
    """The settings that result, and a function that builds the model (allocate=False: shapes only)."""
    from vitrail.model.variants import config_for

    changes = DOCUMENTED if model is None else {}
    base = stored("model", config_for(model or "B/16", **changes), model or "the documents' ViT-B/16")
    asked = user_layers(SECTIONS, config=config, assignments=assignments, flags=flags)
    settings = resolve(SECTIONS, [without_derived(base, asked), *asked])
    return settings, lambda allocate: build(settings, allocate)


def build(settings: Settings, allocate: bool) -> VisionTransformer:
    """Fresh weights, or none at all."""
    from vitrail.model.vit import build_empty, create

    config = settings.records["model"]
    assert isinstance(config, ViTConfig)
    return create(config, seed=0) if allocate else build_empty(config).eval()


def without_derived(base: Layer, asked: list[Layer]) -> Layer:
    """Drop the head dimension a weaker layer derived from sizes that a stronger layer changes."""
    changed = {key for layer in asked for key in layer.values}
    if changed & {"model.hidden_size", "model.num_attention_heads"}:
        return Layer(base.origin, {key: value for key, value in base.values.items() if key != "model.head_dim"})
    return base
