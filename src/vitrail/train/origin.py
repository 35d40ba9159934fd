"""Where the weights start: fresh ones of a named shape, or a checkpoint made to fit the data's classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vitrail.checkpoint.adapt import Adapted, classes
from vitrail.checkpoint.load import load
from vitrail.checkpoint.place import names_a_checkpoint
from vitrail.config import ViTConfig, replace
from vitrail.errors import ConfigError
from vitrail.model.variants import config_for
from vitrail.model.vit import VisionTransformer, build_empty, create
from vitrail.settings import Layer, resolve, stored

# What a checkpoint's config may have changed without changing a weight.
IN_TRAINING = ("hidden_dropout_prob", "attention_probs_dropout_prob", "drop_path_rate")


def starting_model(start: str, asked: Mapping[str, Any], labels: Sequence[str], seed: int) -> VisionTransformer:
    """The model a run begins with; `asked` are the model fields a user set, by dotted name."""
    wanted = asked.get("num_classes", len(labels))
    if wanted != len(labels):
        raise ConfigError(
            f"model.num_classes is {wanted}, but the data has {len(labels)} classes.",
            "One output per class.",
            "Leave model.num_classes out; it follows the data.",
        )
    if names_a_checkpoint(start):
        return from_checkpoint(start, asked, labels)
    return from_name(start, asked, labels, seed)


def from_name(name: str, asked: Mapping[str, Any], labels: Sequence[str], seed: int) -> VisionTransformer:
    """Fresh weights; the same seed gives the same ones."""
    base = stored("model", config_for(name, num_classes=len(labels)), name).values
    if {"hidden_size", "num_attention_heads"} & asked.keys():
        base = {key: value for key, value in base.items() if key != "model.head_dim"}  # it followed from those
    layers = [Layer(name, base), Layer("asked", {f"model.{key}": value for key, value in asked.items()})]
    config = resolve({"model": ViTConfig}, layers).records["model"]
    assert isinstance(config, ViTConfig)
    model = create(config, seed)
    model.labels = list(labels)
    return model


def from_checkpoint(path: str, asked: Mapping[str, Any], labels: Sequence[str]) -> VisionTransformer:
    """Trained weights; the classifier is kept if it knows exactly these classes, else it begins at zero."""
    model = load(path, **{key: value for key, value in asked.items() if key not in (*IN_TRAINING, "num_classes")})
    config, state = model.config, model.state_dict()
    if sorted(model.labels) != sorted(labels) or config.num_classes != len(labels):
        fitted = classes(Adapted(config, state, model.preprocess, model.labels), len(labels), labels)
        config, state = fitted.config, fitted.state
        model.labels = list(labels)
    config = replace(config, **{key: value for key, value in asked.items() if key in IN_TRAINING})
    result = build_empty(config)
    # Copies: a mapped file would make every weight a private page of it.
    result.load_state_dict({name: tensor.clone() for name, tensor in state.items()}, assign=True)
    result.preprocess, result.labels = model.preprocess, model.labels
    return result
