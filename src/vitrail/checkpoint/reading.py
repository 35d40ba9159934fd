"""One checkpoint, read: from a path to our tensors, their config, and the report of how they were understood."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor

from vitrail.checkpoint import accounting, hf_config, preprocess, timm_config
from vitrail.checkpoint.adapt import Adapted, adapt
from vitrail.checkpoint.detect import Match, detect
from vitrail.checkpoint.files import Found, find
from vitrail.checkpoint.report import Report
from vitrail.checkpoint.rules import KEPT, Table
from vitrail.checkpoint.transforms import Sizes
from vitrail.checkpoint.understand import Understanding, understand, variant_name
from vitrail.config import Preprocess, ViTConfig, as_pair, build
from vitrail.errors import CheckpointError
from vitrail.model.vit import build_empty

REGISTERS = "tokens.register_tokens"


@dataclass
class Reading:
    """Our tensors in the file's number format, everything a model needs besides, and the report."""

    config: ViTConfig
    state: dict[str, Tensor]
    kept: dict[str, Tensor]
    preprocess: Preprocess
    labels: list[str]
    report: Report
    match: Match


def read(
    path: Path | str,
    *,
    from_pickle: bool = False,
    allow_nonfinite: bool = False,
    rules: Table | None = None,
    labels: Sequence[str] | None = None,
    strict: bool = True,
    asked: Mapping[str, Any] | None = None,
) -> Reading:
    """The checkpoint at `path`. Not strict: keys that do not add up are listed in the report instead of refused."""
    asked = dict(asked or {})
    if labels is not None:
        asked.setdefault("num_classes", len(labels))
    found = find(path, from_pickle=from_pickle, allow_nonfinite=allow_nonfinite)
    shapes = {key: torch.empty_like(tensor, device="meta") for key, tensor in found.tensors.items()}
    stated = stated_fields(found)
    sizes = _sizes({**stated, **asked})
    match = detect(found.tensors, None if rules is None else (rules,), sizes)
    try:
        understood, lines = _understood(found, match, shapes, sizes, stated, asked)
    except CheckpointError as error:
        if match.complete:
            raise
        raise accounting.refuse(path, match, accounting.problems(match, shapes, {}, {})) from error
    if lines and strict:
        raise accounting.refuse(path, match, lines)
    report = _report(found, match, understood, lines)
    everything = match.plan.run(found.tensors, sizes)
    return _finish(found, match, understood, everything, report, labels)


def stated_fields(found: Found) -> dict[str, Any]:
    """Config fields that the files beside the weights state."""
    config = found.config
    if timm_config.is_timm(config):
        stated = timm_config.fields(config)
        stated.pop("num_classes", None)  # the classifier's shape says it
    else:
        stated = hf_config.fields(config) if config.get("model_type") != "vitrail" else {}
    block = found.block.get("config") or {}
    return {**stated, **{name: _pairs(name, value) for name, value in block.items()}}


def _pairs(name: str, value: Any) -> Any:
    return as_pair(value) if name.endswith(("_size", "_grid")) else value


def _sizes(fields: Mapping[str, Any]) -> Sizes:
    patch = fields.get("patch_size")
    return Sizes(
        head_dim=fields.get("head_dim") or _head_dim(fields),
        patch_size=as_pair(patch) if patch is not None else None,
        num_channels=fields.get("num_channels"),
        grid=as_pair(fields.get("position_grid")) if fields.get("position_grid") else None,
    )


def _head_dim(fields: Mapping[str, Any]) -> int | None:
    width, heads = fields.get("hidden_size"), fields.get("num_attention_heads")
    return width // heads if isinstance(width, int) and isinstance(heads, int) and heads else None


def _understood(
    found: Found,
    match: Match,
    shapes: Mapping[str, Tensor],
    sizes: Sizes,
    stated: Mapping[str, Any],
    asked: Mapping[str, Any],
) -> tuple[Understanding, list[str]]:
    """The config, and a line for every key that does not fit it."""
    for key, tensor in found.tensors.items():
        if not tensor.is_floating_point() and key not in match.plan.ignored and key not in match.plan.unused:
            raise CheckpointError(
                f"{found.path}: '{key}' holds {str(tensor.dtype).removeprefix('torch.')} numbers.",
                "Weights are floating-point numbers; quantised ones mean nothing without their scales.",
                "Use the checkpoint from before quantisation.",
            )
    planned = match.plan.run(dict(shapes), sizes) if not match.unreadable else {}
    state = {
        key: tensor for key, tensor in planned.items() if not key.startswith(KEPT) and not _no_registers(key, tensor)
    }
    understood = understand(match, shapes, state, stated, asked)
    expected = build_empty(understood.config).state_dict()
    return understood, accounting.problems(match, shapes, state, expected)


def _no_registers(key: str, tensor: Tensor) -> bool:
    """DINOv3 of transformers stores its registers even where there are none."""
    return key == REGISTERS and not tensor.shape[1]


def _finish(
    found: Found,
    match: Match,
    understood: Understanding,
    everything: dict[str, Tensor],
    report: Report,
    labels: Sequence[str] | None,
) -> Reading:
    """Preprocessing, labels, and what the caller wants otherwise."""
    config = understood.config
    kept = {key.removeprefix(KEPT): everything.pop(key) for key in list(everything) if key.startswith(KEPT)}
    if REGISTERS in everything and _no_registers(REGISTERS, everything[REGISTERS]):
        kept[REGISTERS] = everything.pop(REGISTERS)
    prepared = stated_preprocess(found, config)
    if prepared is None:
        prepared = preprocess.DEFAULTS.get(report.origin, preprocess.of_google)(config)
        report.assumptions.append(
            f"pictures are prepared as is usual for {report.origin}; nothing beside the file says"
        )
    model = Adapted(config, everything, prepared, stated_labels(found, config) or _numbers(config.num_classes))
    model = adapt(model, understood.wanted, labels)
    if labels is not None:
        model.labels = list(labels)
    report.adaptations = model.notes
    report.kept = sorted(kept)
    _describe(report, model.config, model.preprocess, model.labels)
    return Reading(model.config, model.state, kept, model.preprocess, model.labels, report, match)


def _numbers(count: int) -> list[str]:
    return [str(index) for index in range(count)]


def stated_preprocess(found: Found, config: ViTConfig) -> Preprocess | None:
    """How pictures are to be prepared, where something beside the weights says so."""
    block = found.block.get("preprocess")
    if block is not None:
        return build(Preprocess, {**block, "size": as_pair(block.get("size", config.image_size))})
    if found.preprocessor is not None:
        return preprocess.from_hugging_face(found.preprocessor, config)
    if timm_config.is_timm(found.config):
        return preprocess.from_timm(found.config.get("pretrained_cfg") or found.config, config)
    return None


def stated_labels(found: Found, config: ViTConfig) -> list[str] | None:
    """The names of the classes, where something beside the weights has them."""
    block = found.block.get("labels")
    if isinstance(block, list) and len(block) == config.num_classes:
        return [str(label) for label in block]
    if timm_config.is_timm(found.config):
        return timm_config.labels(found.config, config.num_classes)
    return hf_config.labels(found.config, config.num_classes)


def _report(found: Found, match: Match, understood: Understanding, lines: list[str]) -> Report:
    kinds = sorted({str(tensor.dtype).removeprefix("torch.") for tensor in found.tensors.values()})
    return Report(
        path=str(found.path),
        origin=match.format.name if match.format else match.table.name,
        table=match.table.name,
        prefix=match.prefix,
        dtype="+".join(kinds),
        tensors=len(found.tensors),
        assumptions=understood.assumptions,
        ignored=match.plan.ignored,
        problems=lines,
    )


CONVENTIONS = ("hidden_act", "layer_norm_eps", "position_covers", "position_resampling", "pooling", "final_norm")
TOKENS = {"class": "class_token", "distillation": "distillation_token"}


def _describe(report: Report, config: ViTConfig, prepared: Preprocess, labels: list[str]) -> None:
    """What the model is, in words and numbers."""
    report.variant = variant_name(config)
    report.parameters = sum(tensor.numel() for tensor in build_empty(config).state_dict().values())
    report.image_size, report.patch_size = config.image_size, config.patch_size
    report.grid = config.table_grid if config.position == "learned" else config.grid
    report.prefix_tokens = [name for name, attribute in TOKENS.items() if getattr(config, attribute)]
    report.prefix_tokens += [f"register {index}" for index in range(config.num_register_tokens)]
    report.conventions = {name: getattr(config, name) for name in CONVENTIONS}
    if config.resnet is not None:
        report.conventions |= {
            name: value for name, value in msgspec.to_builtins(config.resnet).items() if name not in ("layers", "width")
        }
    report.config = msgspec.to_builtins(config)
    report.preprocess, report.labels = prepared, labels
    report.architecture = (
        f"{config.hidden_size} wide, {config.num_hidden_layers} blocks, {config.num_attention_heads} heads, "
        f"MLP {config.intermediate_size}{' SwiGLU' if config.mlp == 'swiglu' else ''}"
    )
