"""Config fields that our own tensors show by their shapes and by being there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isqrt
from typing import Any

from torch import Tensor

from vitrail.config import Pair
from vitrail.errors import CheckpointError

PATCH = "stem.proj.weight"
MAX_COUNT = 512  # blocks, or units of a stage: ten times the deepest model there is, and still quick to build


def fields(state: Mapping[str, Tensor]) -> dict[str, Any]:
    """Everything about a model that its tensors leave no doubt about."""
    for key, tensor in state.items():
        if not tensor.numel() and ".attn." not in key:  # a layer may have lost all its heads, and nothing else
            raise CheckpointError(f"'{key}' has the shape {list(tensor.shape)}: it is empty.", "Weights have numbers.")
    if PATCH not in state or state[PATCH].ndim != 4:
        raise CheckpointError(
            "There is no patch projection among the tensors.",
            "A Vision Transformer starts with one (a convolution, or a linear map with a rule for it).",
            "See docs/formats.md for bringing rules of your own.",
        )
    hidden, channels, *patch = state[PATCH].shape
    found: dict[str, Any] = {"hidden_size": hidden, "patch_size": tuple(patch), "num_channels": channels}
    found |= {"patch_bias": "stem.proj.bias" in state, "pre_norm": "tokens.norm.weight" in state}
    found |= _stem(state) | _tokens(state) | _blocks(state) | _head(state, hidden)
    return found


def _stem(state: Mapping[str, Tensor]) -> dict[str, Any]:
    root = state.get("stem.resnet.root.weight")
    if root is None:
        return {"resnet": None}
    units = [
        _numbers(state, rf"stem\.resnet\.stages\.{stage}\.(\d+)\.conv1\.weight") for stage in range(_stages(state))
    ]
    layers = tuple(_counted(unit, f"units of stage {stage}") for stage, unit in enumerate(units))
    return {"resnet": {"layers": layers, "width": root.shape[0]}, "num_channels": root.shape[1]}


def _stages(state: Mapping[str, Tensor]) -> int:
    return _counted(_numbers(state, r"stem\.resnet\.stages\.(\d+)\..*"), "stages of the stem")


def _tokens(state: Mapping[str, Tensor]) -> dict[str, Any]:
    registers = state.get("tokens.register_tokens")
    found: dict[str, Any] = {
        "class_token": "tokens.class_token" in state,
        "distillation_token": "tokens.distillation_token" in state,
        "num_register_tokens": 0 if registers is None else registers.shape[1],
    }
    return found | ({"position": "learned"} if "tokens.position.table" in state else {})


def _blocks(state: Mapping[str, Tensor]) -> dict[str, Any]:
    count = _counted(_numbers(state, r"encoder\.blocks\.(\d+)\..*"), "blocks")
    if not count or (fc2 := _matrix(state, "encoder.blocks.0.mlp.fc2.weight")) is None:
        raise CheckpointError("There are no encoder blocks among the tensors.", "At least one.", "See docs/formats.md.")
    fc1, first = state.get("encoder.blocks.0.mlp.fc1.weight"), "encoder.blocks.0."
    packed_bias, separate_bias = f"{first}attn.qkv.bias" in state, f"{first}attn.query_value_bias" in state
    found: dict[str, Any] = {
        "num_hidden_layers": count,
        "intermediate_size": fc2.shape[1],
        "mlp": "swiglu" if fc1 is not None and fc1.shape[0] == 2 * fc2.shape[1] else "dense",
        "qkv_bias": packed_bias or separate_bias,
        "qk_norm": f"{first}attn.q_norm.weight" in state,
    }
    if found["qkv_bias"]:
        found["key_bias"] = packed_bias
    if found["qk_norm"]:
        found["head_dim"] = state[f"{first}attn.q_norm.weight"].shape[0]
    return found | ({} if f"{first}scale1" in state else {"layer_scale": None})


def _head(state: Mapping[str, Tensor], hidden: int) -> dict[str, Any]:
    classifier, representation = _matrix(state, "head.classifier.weight"), _matrix(state, "head.representation.weight")
    found: dict[str, Any] = {
        "num_classes": 0 if classifier is None else classifier.shape[0],
        "representation_size": None if representation is None else representation.shape[0],
    }
    if "head.pool.query" in state:
        found["pooling"] = "map"
    elif (last := classifier if representation is None else representation) is not None and last.shape[1] == 2 * hidden:
        found["pooling"] = "token_and_mean"
    norms = [name for name, key in (("tokens", "encoder.norm.weight"), ("pooled", "head.norm.weight")) if key in state]
    return found | ({"final_norm": norms[0]} if len(norms) == 1 else {})


def _matrix(state: Mapping[str, Tensor], key: str) -> Tensor | None:
    tensor = state.get(key)
    if tensor is not None and tensor.ndim != 2:
        raise CheckpointError(f"'{key}' has the shape {list(tensor.shape)}.", "A linear map has rows and columns.", "")
    return tensor


def _numbers(state: Mapping[str, Tensor], pattern: str) -> set[int]:
    return {int(match[1]) for key in state if (match := re.fullmatch(pattern, key))}


def _counted(numbers: set[int], what: str) -> int:
    """How many there are; an error where the numbers have a gap."""
    if numbers != set(range(len(numbers))):
        raise CheckpointError(
            f"The {what} are numbered {sorted(numbers)[:8]}…, {len(numbers)} in all.",
            f"They are numbered from 0 to {len(numbers) - 1} without a gap.",
            "The file is incomplete, or holds something else besides.",
        )
    if len(numbers) > MAX_COUNT:
        raise CheckpointError(f"There are {len(numbers)} {what}.", f"At most {MAX_COUNT}.", "")
    return len(numbers)


def square(count: int) -> Pair | None:
    """The sides of a square grid of `count` patches, if it is one."""
    side = isqrt(max(count, 0))
    return (side, side) if side and side * side == count else None
