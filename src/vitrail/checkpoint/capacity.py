"""What each format can hold: the features of a model, format by format, and what can be done about those it cannot.

A feature a format lacks is refused. With `lossy` it is taken out where something sensible is left, and said.
Numbers the format's own software computes otherwise (`deviations`) are no reason to refuse: they are reported with
their measured effect, and written beside the tensors for vitrail to read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vitrail.checkpoint.formats import FORMATS
from vitrail.config import ViTConfig, replace
from vitrail.errors import CheckpointError
from vitrail.model.tokens import sincos_table

State = dict[str, Tensor]
TABLE = "tokens.position.table"
Reduce = Callable[[ViTConfig, State], tuple[ViTConfig, State]]


@dataclass(frozen=True)
class Feature:
    """Something a model may have and a format may lack."""

    what: str
    there: Callable[[ViTConfig], bool]
    reduce: Reduce | None = None
    done: str = ""  # what `reduce` does, for the report


def _drop(state: State, *prefixes: str) -> State:
    return {key: tensor for key, tensor in state.items() if not key.startswith(prefixes)}


def _without_representation(config: ViTConfig, state: State) -> tuple[ViTConfig, State]:
    classes = config.num_classes if config.representation_size == config.hidden_size else 0
    state = _drop(state, "head.representation", *(() if classes else ("head.classifier",)))
    return replace(config, representation_size=None, num_classes=classes), state


def _without_distillation(config: ViTConfig, state: State) -> tuple[ViTConfig, State]:
    state = _drop(state, "tokens.distillation_token", "head.classifier_distilled")
    if config.positioned_prefix > 1:
        state[TABLE] = torch.cat([state[TABLE][:, :1], state[TABLE][:, 2:]], dim=1)
    return replace(config, distillation_token=False), state


def _without_registers(config: ViTConfig, state: State) -> tuple[ViTConfig, State]:
    state = _drop(state, "tokens.register_tokens")
    if TABLE in state and config.position_covers == "all":
        first = config.class_token + config.distillation_token
        rows = state[TABLE]
        state[TABLE] = torch.cat([rows[:, :first], rows[:, config.positioned_prefix :]], dim=1)
    covers = "class" if config.position_covers == "all" else config.position_covers
    return replace(config, num_register_tokens=0, position_covers=covers), state


def _fold_layer_scale(config: ViTConfig, state: State) -> tuple[ViTConfig, State]:
    state = dict(state)
    for layer in range(config.num_hidden_layers):
        for number, name in (("1", "attn.proj"), ("2", "mlp.fc2")):
            scale, block = state.pop(f"encoder.blocks.{layer}.scale{number}"), f"encoder.blocks.{layer}.{name}"
            state[f"{block}.weight"] = state[f"{block}.weight"] * scale[:, None]
            state[f"{block}.bias"] = state[f"{block}.bias"] * scale
    return replace(config, layer_scale=None), state


def _zero_biases(config: ViTConfig, state: State) -> tuple[ViTConfig, State]:
    state = dict(state)
    for layer in range(config.num_hidden_layers):
        name = f"encoder.blocks.{layer}.attn"
        pair, weight = state.pop(f"{name}.query_value_bias", None), state[f"{name}.qkv.weight"]
        query, value = weight.new_zeros(2, len(weight) // 3) if pair is None else pair.chunk(2)
        state[f"{name}.qkv.bias"] = torch.cat([query, torch.zeros_like(query), value])
    return replace(config, qkv_bias=True, key_bias=True), state


def _write_out_sincos(config: ViTConfig, state: State) -> tuple[ViTConfig, State]:
    table = sincos_table(config.grid, config.hidden_size).to(state["stem.proj.weight"].dtype)
    return replace(config, position="learned", position_covers="patches"), {**state, TABLE: table}


def _zero_rows(config: ViTConfig, state: State) -> tuple[ViTConfig, State]:
    first = config.class_token + config.distillation_token
    zeros = state[TABLE].new_zeros(1, first, config.hidden_size)
    return replace(config, position_covers="class"), {**state, TABLE: torch.cat([zeros, state[TABLE]], dim=1)}


def _norm_before(config: ViTConfig, state: State) -> tuple[ViTConfig, State]:
    moved = {key.replace("head.norm", "encoder.norm"): tensor for key, tensor in state.items()}
    return replace(config, final_norm="tokens"), moved


def _own_stem(config: ViTConfig) -> bool:
    """Symmetric padding, or a norm for each channel of a shortcut: another model than Google's (0.8 to 1.9 off)."""
    assert config.resnet is not None
    return config.resnet.padding == "symmetric" or config.resnet.shortcut_groups == "per_channel"


def _covers(config: ViTConfig, what: str) -> bool:
    """Whether the table leaves out tokens that a table of this kind has."""
    if config.position != "learned":
        return False
    first = config.class_token + config.distillation_token
    return {
        "patches": first > 0 and config.positioned_prefix == 0,
        "class": config.num_register_tokens > 0 and config.positioned_prefix == first,
        "all": config.num_register_tokens > 0 and config.positioned_prefix > first,
    }[what]


FEATURES: dict[str, Feature] = {
    "resnet": Feature("a convolutional stem", lambda c: c.resnet is not None),
    "google_stem": Feature("a stem padded as TensorFlow pads", lambda c: c.resnet is not None and not _own_stem(c)),
    "jeonsworld_stem": Feature("jeonsworld's own kind of stem", lambda c: c.resnet is not None and _own_stem(c)),
    "representation": Feature(
        "a dense layer before the classifier (pre-logits, pooler)",
        lambda c: c.representation_size is not None,
        _without_representation,
        "left out, with a classifier that only fits behind it",
    ),
    "representation_act": Feature(
        "an MLP head with another activation than tanh",
        lambda c: c.representation_size is not None and c.representation_act != "tanh",
    ),
    "distillation": Feature(
        "a distillation token", lambda c: c.distillation_token, _without_distillation, "left out with its classifier"
    ),
    "registers": Feature("register tokens", lambda c: c.num_register_tokens > 0, _without_registers, "left out"),
    "layer_scale": Feature(
        "LayerScale",
        lambda c: c.layer_scale is not None,
        _fold_layer_scale,
        "multiplied into the projections before it: the same function, other numbers",
    ),
    "swiglu": Feature("a SwiGLU MLP", lambda c: c.mlp == "swiglu"),
    "qk_norm": Feature("norms on queries and keys", lambda c: c.qk_norm),
    "no_bias": Feature(
        "queries, keys or values without a bias", lambda c: not (c.qkv_bias and c.key_bias), _zero_biases, "given zeros"
    ),
    "pre_norm": Feature("a norm before the first block", lambda c: c.pre_norm),
    "no_patch_bias": Feature("patches without a bias", lambda c: not c.patch_bias),
    "rotary": Feature("rotary positions", lambda c: c.position == "rotary"),
    "sincos": Feature("computed positions", lambda c: c.position == "sincos", _write_out_sincos, "written out"),
    "no_positions": Feature("no positions", lambda c: c.position == "none"),
    "covers_patches": Feature(
        "a position table without a row for the class token", lambda c: _covers(c, "patches"), _zero_rows, "given zeros"
    ),
    "covers_class": Feature(
        "registers without a position", lambda c: _covers(c, "class"), _without_registers, "left out"
    ),
    "covers_all": Feature("registers with a position", lambda c: _covers(c, "all"), _without_registers, "left out"),
    "no_class": Feature("no class token", lambda c: not c.class_token),
    "mean": Feature("mean pooling beside a class token", lambda c: c.pooling == "mean" and c.class_token),
    "map": Feature("attention pooling", lambda c: c.pooling == "map"),
    "map_prefix": Feature(
        "attention pooling beside other tokens", lambda c: c.pooling == "map" and c.prefix_tokens > 0
    ),
    "token_and_mean": Feature("a classifier over token and mean", lambda c: c.pooling == "token_and_mean"),
    "norm_after_token": Feature(
        "the final norm after pooling",
        lambda c: c.final_norm == "pooled" and c.pooling == "token",
        _norm_before,
        "moved before it: the same for a single token",
    ),
    "norm_after_mean": Feature(
        "the final norm after averaging", lambda c: c.final_norm == "pooled" and c.pooling != "token"
    ),
    "pruned": Feature("pruned heads", lambda c: c.kept_heads is not None),
    "head_dim": Feature(
        "heads whose width is not the model's divided by their number",
        lambda c: c.head_dim != c.hidden_size / c.num_attention_heads,
    ),
    "rectangle": Feature(
        "pictures or patches that are not square",
        lambda c: c.table_grid[0] != c.table_grid[1] or c.patch_size[0] != c.patch_size[1],
    ),
    "ragged": Feature("pictures that patches do not divide", lambda c: c.ragged_edge == "crop"),
    "channels": Feature("other than 3 channels", lambda c: c.num_channels != 3),
    "no_classes": Feature("no classifier", lambda c: c.num_classes == 0),
}

HOLDS: dict[str, frozenset[str]] = {
    "google": frozenset(
        {"resnet", "google_stem", "representation", "no_class", "map", "sincos", "covers_patches"}
        | {"rectangle", "ragged", "channels", "no_classes", "head_dim"}
    ),
    "timm": frozenset(
        {"resnet", "google_stem", "distillation", "registers", "layer_scale", "swiglu", "qk_norm"}
        | {
            "pre_norm",
            "no_patch_bias",
            "no_positions",
            "covers_patches",
            "covers_class",
            "covers_all",
            "no_class",
            "mean",
            "map",
        }
        | {"norm_after_token", "norm_after_mean", "rectangle", "ragged", "channels", "no_classes", "no_bias"}
    ),
    "torchvision": frozenset({"representation"}),
    "jeonsworld": frozenset({"resnet", "jeonsworld_stem", "rectangle", "ragged"}),
    "vitrail": frozenset(FEATURES),
}


def lacking(config: ViTConfig, name: str) -> dict[str, Feature]:
    """The features of this model that a format cannot hold."""
    held = HOLDS[name] - _exceptions(config, name)
    return {key: feature for key, feature in FEATURES.items() if key not in held and feature.there(config)}


def _exceptions(config: ViTConfig, name: str) -> frozenset[str]:
    """Features a format holds only in company."""
    if name != "timm":
        return frozenset()
    exceptions: set[str] = set()
    if config.patch_bias == config.pre_norm:  # timm's patches have a bias exactly where there is no norm after them
        exceptions |= {"no_patch_bias", "pre_norm"}
    if not config.key_bias and config.qkv_bias:
        exceptions |= {"no_bias"}
    if config.distillation_token and config.num_register_tokens:
        exceptions |= {"registers"}
    if config.distillation_token and _covers(config, "patches"):
        exceptions |= {"covers_patches"}
    return frozenset(exceptions)


def fitted(config: ViTConfig, state: State, name: str, lossy: bool) -> tuple[ViTConfig, State, list[str]]:
    """The model as the format can hold it, and what was done to it; refused where that is a loss nobody allowed."""
    missing = lacking(config, name)
    if not missing:
        return config, state, []
    stuck = [feature.what for feature in missing.values() if feature.reduce is None]
    if stuck or not lossy:
        raise refusal(name, [feature.what for feature in missing.values()], stuck)
    notes = []
    for feature in missing.values():
        assert feature.reduce is not None
        if feature.there(config):  # an earlier step may have settled it
            config, state = feature.reduce(config, state)
            notes.append(f"{feature.what}: {feature.done}")
    left = lacking(config, name)
    if left:
        raise refusal(name, [feature.what for feature in left.values()], [feature.what for feature in left.values()])
    return config, state, notes


def refusal(name: str, missing: Iterable[str], stuck: Iterable[str]) -> CheckpointError:
    """The error that says what a format has no place for; the caller raises it."""
    stuck = list(stuck)
    fix = f"Nothing sensible is left without {', '.join(stuck)}." if stuck else "With lossy (--lossy) it is taken out."
    return CheckpointError(
        f"The {name} format has no place for: {', '.join(missing)}.",
        "Nothing of a model is dropped in silence.",
        f"{fix} format='native' holds every model.",
    )


# fields that a format writes down, and so does not fix
WRITTEN: dict[str, frozenset[str]] = {
    "google": frozenset(),
    "timm": frozenset({"hidden_act"}),
    "torchvision": frozenset(),
    "jeonsworld": frozenset(),
}
COMPUTED = ("hidden_act", "layer_norm_eps")  # those of a format's conventions that change a forward pass


def deviations(config: ViTConfig, name: str) -> dict[str, tuple[Any, Any]]:
    """Numbers the format's own software computes otherwise: (ours, theirs). Stem fields go by `resnet.` names."""
    if name not in WRITTEN:
        return {}
    form = FORMATS[name]
    usual = {field: form.conventions[field] for field in COMPUTED if field not in WRITTEN[name]}
    if config.mlp == "swiglu":
        usual.pop("hidden_act", None)
    found = {
        field: (getattr(config, field), value) for field, value in usual.items() if getattr(config, field) != value
    }
    if config.resnet is not None:
        stem = {name: getattr(type(config.resnet)(), name) for name in STEM} | form.stem
        found |= {
            f"resnet.{name}": (getattr(config.resnet, name), value)
            for name, value in stem.items()
            if getattr(config.resnet, name) != value
        }
    return found


STEM = ("group_norm_eps", "standardization", "standardization_eps", "padding", "shortcut_groups")


def as_computed_by(config: ViTConfig, name: str) -> ViTConfig:
    """The config with every number as the format's own software has it."""
    changes = {field: theirs for field, (_, theirs) in deviations(config, name).items()}
    stem = {field.removeprefix("resnet."): changes.pop(field) for field in list(changes) if field.startswith("resnet.")}
    if stem:
        assert config.resnet is not None
        changes["resnet"] = replace(config.resnet, **stem)
    return replace(config, **changes)
