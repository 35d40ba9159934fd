"""What makes a config impossible, and the sentence that says so and names a way out.

Called by the records of config.py when they are made, so that no tensor is ever made from a config that cannot work.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

import msgspec

from vitrail.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from vitrail.config import Preprocess, ViTConfig

PAIRS = ("image_size", "patch_size")  # fields where an int stands for a square
AT_LEAST_ONE = ("num_channels", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
AT_LEAST_ZERO = ("num_classes", "num_register_tokens", "initializer_range")
POSITIVE = ("layer_norm_eps", "rotary_base")
MAX_SIDE = 16_384  # of a prepared picture: one of that size takes 3 GB as the model's input


def check_numbers(config: ViTConfig) -> None:
    """Counts count something, probabilities are probabilities."""
    optional = [field for field in ("head_dim", "representation_size") if getattr(config, field) is not None]
    for field in (*AT_LEAST_ONE, *optional):
        require(config, field, lambda value: value >= 1, "1 or more")
    for field in (*PAIRS, *(["position_grid"] if config.position_grid else [])):
        require(config, field, lambda value: len(value) == 2 and min(value) >= 1, "an int or (rows, columns), from 1")
    for field in AT_LEAST_ZERO:
        require(config, field, lambda value: value >= 0, "0 or more")
    for field in (*POSITIVE, *(["layer_scale"] if config.layer_scale is not None else [])):
        require(config, field, lambda value: 0 < value < float("inf"), "above 0")
    for field in ("hidden_dropout_prob", "attention_probs_dropout_prob", "drop_path_rate"):
        require(config, field, lambda value: 0 <= value < 1, "a probability: at least 0, below 1")


def check_pictures(prepared: Preprocess) -> None:
    """Sizes a machine can hold, colours that scale to numbers."""
    for field in ("size", "resize"):
        require(
            prepared,
            field,
            lambda value: value is None or all(1 <= side <= MAX_SIDE for side in as_pair(value)),
            f"1 to {MAX_SIDE:,} pixels",
        )
    require(prepared, "mean", lambda mean: mean and all(map(isfinite, mean)), "a finite number for each channel")
    require(prepared, "std", lambda std: all(0 < value < inf for value in std), "above 0 for each channel")
    require(prepared, "std", lambda std: len(std) == len(prepared.mean), f"as long as mean, {len(prepared.mean)}")


def require(record: msgspec.Struct, field: str, holds: Callable[[Any], bool], expected: str) -> None:
    """Refuse a field whose value does not hold, saying what would."""
    value = getattr(record, field)
    if not holds(value):
        raise ConfigError(f"{field} is {value}.", f"It must be {expected}.", f"Set {field} to such a value.")


def check_fields(record: msgspec.Struct) -> None:
    """Bring every field to its declared type and one of its allowed words, or say which one cannot be."""
    for field in msgspec.structs.fields(record):
        value = getattr(record, field.name)
        value = as_pair(value) if field.name in PAIRS else value
        try:
            converted = msgspec.convert(value, field.type)
        except msgspec.ValidationError as error:
            raise _unfit(type(record), field.name, value, str(error)) from None
        msgspec.structs.force_setattr(record, field.name, converted)


def as_pair(size: Any) -> Any:
    """An int is a square; anything else is left for the type check."""
    return (size, size) if isinstance(size, int) else tuple(size) if isinstance(size, list) else size


def _unfit(kind: type[msgspec.Struct], field: str, value: Any, message: str) -> ConfigError:
    words = literal_values(kind, field)
    if words:
        return ConfigError(f"{field} is {value!r}.", did_you_mean(str(value), words), f"One of: {', '.join(words)}.")
    plain = re.sub(r"`([\w| ]+)`", lambda types: " or ".join(SPOKEN.get(t, t) for t in types[1].split(" | ")), message)
    return ConfigError(f"{field} is {value!r}.", f"{plain}.", f"Set {field} to such a value.")


# What msgspec calls a type, in words for somebody who set a value and knows no Python.
SPOKEN = {"bool": "true or false", "int": "a whole number", "float": "a number", "str": "text"}
SPOKEN |= {"array": "a list", "object": "a table", "null": "none"}


def check_heads_divide(config: ViTConfig) -> None:
    """Without an explicit head_dim, heads share hidden_size evenly."""
    hidden, heads = config.hidden_size, config.num_attention_heads
    if hidden % heads:
        fits = [n for n in range(1, hidden + 1) if hidden % n == 0]
        near = sorted(sorted(fits, key=lambda n: abs(n - heads))[:3])
        raise ConfigError(
            f"hidden_size {hidden} does not divide into {heads} attention heads.",
            "Each head works on hidden_size / num_attention_heads numbers.",
            f"Use {', '.join(map(str, near))} heads, hidden_size {hidden // heads * heads or heads} or "
            f"{(hidden // heads + 1) * heads}, or set head_dim.",
        )


def check_kept_heads(config: ViTConfig) -> None:
    """Pruned models list, per layer, heads that were once there."""
    if config.kept_heads is None:
        return
    if len(config.kept_heads) != config.num_hidden_layers:
        raise ConfigError(
            f"kept_heads lists {len(config.kept_heads)} layers.",
            f"The model has {config.num_hidden_layers}.",
            "Give one list per layer; () removes all heads of a layer.",
        )
    for layer, heads in enumerate(config.kept_heads):
        if list(heads) != sorted(set(heads)) or any(not 0 <= h < config.num_attention_heads for h in heads):
            raise ConfigError(
                f"kept_heads[{layer}] is {list(heads)}.",
                f"Different numbers from 0 to {config.num_attention_heads - 1}, ascending.",
                "Heads keep the numbers they had before pruning.",
            )


def check_tokens(config: ViTConfig) -> None:
    """Pooling and positions find the tokens and widths they need."""
    if config.pooling in ("token", "token_and_mean") and not config.class_token:
        raise ConfigError(
            f"pooling is {config.pooling!r}, but the model has no class token.",
            "Token pooling reads the class token.",
            "Use pooling='mean' or 'map', or class_token=True.",
        )
    if config.pooling == "token_and_mean" and config.final_norm == "pooled":
        raise ConfigError(
            "final_norm is 'pooled', but pooling is 'token_and_mean'.",
            "A norm after pooling is as wide as one token.",
            "Use final_norm='tokens'.",
        )
    if config.pooling == "map" and config.hidden_size % config.num_attention_heads:
        raise ConfigError(
            f"pooling is 'map', and hidden_size {config.hidden_size} does not divide into "
            f"{config.num_attention_heads} heads.",
            "The pooling query attends with num_attention_heads heads of equal width.",
            "Change num_attention_heads, or use another pooling.",
        )
    if config.distillation_token and (config.pooling != "token" or not config.class_token):
        raise ConfigError(
            "There is a distillation token without a class token read by the head.",
            "DeiT averages a class-token and a distillation-token classifier.",
            "Use class_token=True and pooling='token', or distillation_token=False.",
        )
    if config.position == "sincos" and config.hidden_size % 4:
        raise ConfigError(
            f"hidden_size {config.hidden_size} cannot hold a sin-cos table.",
            "Sine and cosine of rows and of columns: a multiple of 4.",
            "Use position='learned' or another hidden_size.",
        )
    if config.position == "rotary" and config.head_dim and config.head_dim % 4:
        raise ConfigError(
            f"head_dim {config.head_dim} cannot be rotated.",
            "Rotary positions turn pairs, for rows and for columns: a multiple of 4.",
            "Change num_attention_heads or head_dim.",
        )


def literal_values(kind: type[msgspec.Struct], field: str) -> tuple[str, ...]:
    """The words a field accepts, or none where it takes something else."""
    described = msgspec.inspect.type_info(kind)
    assert isinstance(described, msgspec.inspect.StructType)
    annotation = next(f.type for f in described.fields if f.name == field)
    return tuple(map(str, annotation.values)) if isinstance(annotation, msgspec.inspect.LiteralType) else ()
