"""MODEL, wherever a command takes one: a checkpoint or a name, changed by flags, --set and --config."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitrail.config import ViTConfig
from vitrail.errors import UsageError
from vitrail.settings import Layer, Settings, resolve, stored, user_layers

if TYPE_CHECKING:
    from vitrail.model.vit import VisionTransformer

SECTIONS = {"model": ViTConfig}
DOCUMENTED = {"representation_size": 768}  # ViT-B/16 with the pooler of the documents vitrail started from
WEIGHT_FILES = (".npz", ".safetensors", ".pth", ".pt", ".bin")

Built = Callable[..., "VisionTransformer"]


def model_from_arguments(
    model: str | None, flags: Mapping[str, Any], config: Path | None, assignments: tuple[str, ...]
) -> tuple[Settings, Built]:
    """The settings that result, and a function that gives the model (allocate=False: shapes are enough)."""
    from vitrail.checkpoint.place import names_a_checkpoint

    asked = user_layers(SECTIONS, config=config, assignments=assignments, flags=flags)
    if model is not None and names_a_checkpoint(model):
        return from_checkpoint(model, asked)
    if model is not None and Path(model).suffix in WEIGHT_FILES:
        raise UsageError(f"There is no file {model}.", "A checkpoint, or a name such as B/16.", "Check the path.")
    return from_name(model, asked)


def from_name(name: str | None, asked: list[Layer]) -> tuple[Settings, Built]:
    """A fresh model of a named variant."""
    from vitrail.model.variants import config_for
    from vitrail.model.vit import build_empty, create

    variant = config_for("B/16", **DOCUMENTED) if name is None else config_for(name)
    base = stored("model", variant, name or "the documents' ViT-B/16")
    settings = resolve(SECTIONS, [without_derived(base, asked), *asked])
    final = settings.records["model"]
    assert isinstance(final, ViTConfig)
    return settings, lambda allocate: create(final, seed=0) if allocate else build_empty(final).eval()


def from_checkpoint(path: str, asked: list[Layer]) -> tuple[Settings, Built]:
    """A model with its weights; what was asked for beyond them is adapted or filled in while loading."""
    from vitrail.checkpoint import load

    fields = {key.removeprefix("model."): value for layer in asked for key, value in layer.values.items()}
    model = load(path, **fields)
    base = stored("model", model.config, f"checkpoint {path}")
    return resolve(SECTIONS, [base, *asked]), lambda allocate: model


def without_derived(base: Layer, asked: list[Layer]) -> Layer:
    """Drop the head dimension a weaker layer derived from sizes that a stronger layer changes."""
    changed = {key for layer in asked for key in layer.values}
    if changed & {"model.hidden_size", "model.num_attention_heads"}:
        return Layer(base.origin, {key: value for key, value in base.values.items() if key != "model.head_dim"})
    return base
