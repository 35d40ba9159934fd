"""One checkpoint, read: from a path to our tensors, their config, and the report of how they were understood."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitrail.checkpoint import accounting, describe, preprocess
from vitrail.checkpoint.adapt import Adapted, adapt, prepared_for
from vitrail.checkpoint.beside import fields_asked_for, readable, stated_fields, stated_labels, stated_preprocess
from vitrail.checkpoint.custom import Custom, rules_from_toml
from vitrail.checkpoint.detect import Match, detect
from vitrail.checkpoint.files import Found, find
from vitrail.checkpoint.report import Report
from vitrail.checkpoint.rules import KEPT, compiled
from vitrail.checkpoint.transforms import Sizes
from vitrail.checkpoint.understand import understand
from vitrail.checkpoint.understanding import Understanding
from vitrail.config import Preprocess, ViTConfig
from vitrail.errors import CheckpointError, ConfigError
from vitrail.model.vit import VisionTransformer, build_empty

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
    empty: VisionTransformer  # the model, nothing allocated


@dataclass
class Opened:
    """A checkpoint whose names are recognised, with everything that is said about it; nothing computed yet."""

    found: Found
    match: Match
    shapes: dict[str, Tensor]  # on "meta"
    stated: dict[str, Any]
    asked: dict[str, Any]
    sizes: Sizes


def read(
    path: Path | str,
    *,
    from_pickle: bool = False,
    allow_nonfinite: bool = False,
    rules: Custom | Path | str | None = None,
    labels: Sequence[str] | None = None,
    asked: Mapping[str, Any] | None = None,
) -> Reading:
    """The checkpoint at `path`; an error that shows both sides where a key does not add up."""
    asked = {**({} if labels is None else {"num_classes": len(labels)}), **(asked or {})}
    opened = open_checkpoint(path, from_pickle, allow_nonfinite, rules, asked)
    match, found = opened.match, opened.found
    try:
        understood, empty, lines = _understood(opened)
    except CheckpointError as error:
        if match.complete:
            raise
        lines = accounting.problems(match, opened.shapes, {}, {})
        raise accounting.refuse(path, match, lines, str(error)) from error
    if lines:
        raise accounting.refuse(path, match, lines)
    report = describe.opened(found, match, [])
    report.assumptions = understood.assumptions
    everything = match.plan.run(found.tensors, opened.sizes)
    return _finish(opened, understood, empty, everything, report, labels)


def survey(
    path: Path | str,
    *,
    from_pickle: bool = False,
    allow_nonfinite: bool = False,
    rules: Custom | Path | str | None = None,
    asked: Mapping[str, Any] | None = None,
) -> Report:
    """What `read` would say about the checkpoint at `path`; what it would refuse is listed among the problems."""
    opened = open_checkpoint(path, from_pickle, allow_nonfinite, rules, asked or {})
    report = describe.opened(opened.found, opened.match, [])
    try:
        understood, empty, report.problems = _understood(opened)
    except (CheckpointError, ConfigError) as error:
        report.problems = [*accounting.problems(opened.match, opened.shapes, {}, {}), *str(error).split("\n")]
        return report
    report.assumptions = understood.assumptions
    if report.problems:
        return report
    everything = opened.match.plan.run(opened.found.tensors, opened.sizes)
    return _finish(opened, understood, empty, everything, report, None).report


def open_checkpoint(
    path: Path | str,
    from_pickle: bool,
    allow_nonfinite: bool,
    rules: Custom | Path | str | None,
    asked: Mapping[str, Any],
) -> Opened:
    """Find the files, recognise the names."""
    fields = fields_asked_for(asked)
    custom = rules if rules is None or isinstance(rules, Custom) else rules_from_toml(rules)
    found = find(path, from_pickle=from_pickle, allow_nonfinite=allow_nonfinite)
    if not found.tensors:
        raise CheckpointError(f"{path} holds no tensors.", "Weights.", "Check that the file is complete.")
    if custom is not None:
        found.config = custom.beside
    stated = stated_fields(found)
    sizes = _sizes({**stated, **fields})
    match = detect(found.tensors, None if custom is None else (custom.table,), sizes)
    shapes = {key: torch.empty_like(tensor, device="meta") for key, tensor in found.tensors.items()}
    return Opened(found, match, shapes, stated, fields, sizes)


def _sizes(fields: Mapping[str, Any]) -> Sizes:
    return Sizes(
        head_dim=fields.get("head_dim") or _head_dim(fields),
        patch_size=fields.get("patch_size"),
        num_channels=fields.get("num_channels"),
        grid=fields.get("position_grid"),
    )


def _head_dim(fields: Mapping[str, Any]) -> int | None:
    width, heads = fields.get("hidden_size"), fields.get("num_attention_heads")
    return width // heads if isinstance(width, int) and isinstance(heads, int) and heads else None


def _understood(opened: Opened) -> tuple[Understanding, VisionTransformer, list[str]]:
    """The config, its model with nothing allocated, and a line for every key that does not fit it."""
    match, shapes = opened.match, opened.shapes
    _refuse_quantised(opened)
    planned = match.plan.run(dict(shapes), opened.sizes) if not match.unreadable else {}
    state = {
        key: tensor for key, tensor in planned.items() if not key.startswith(KEPT) and not _no_registers(key, tensor)
    }
    understood = understand(match, shapes, state, opened.stated, opened.asked)
    if opened.asked:
        empty = build_empty(understood.config)
    else:  # nobody asked for anything, so what does not fit was said beside the file
        with readable(opened.found):
            empty = build_empty(understood.config)
    expected = empty.state_dict()
    state |= constants(match, expected, state)
    return understood, empty, accounting.problems(match, shapes, state, expected)


def _refuse_quantised(opened: Opened) -> None:
    used = {key for step in opened.match.plan.steps for key, _ in step.sources}
    for key in used:
        dtype = opened.shapes[key].dtype
        if not dtype.is_floating_point:
            raise CheckpointError(
                f"{opened.found.path}: '{key}' holds {str(dtype).removeprefix('torch.')} numbers.",
                "Weights are floating-point numbers; quantised ones mean nothing without their scales.",
                "Use the checkpoint from before quantisation.",
            )


def constants(match: Match, expected: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors of ours that this way of writing leaves out because they always hold the same number."""
    index = compiled(match.table, match.prefix)
    like = next(iter(state.values()), None)
    values = {key: index.constant(key) for key in expected if key not in state}
    return {
        key: torch.full(expected[key].shape, value, dtype=like.dtype, device=like.device)
        for key, value in values.items()
        if not math.isnan(value) and like is not None
    }


def _no_registers(key: str, tensor: Tensor) -> bool:
    """DINOv3 of transformers stores its registers even where there are none."""
    return key == REGISTERS and not tensor.shape[1]


def _finish(
    opened: Opened,
    understood: Understanding,
    empty: VisionTransformer,
    everything: dict[str, Tensor],
    report: Report,
    labels: Sequence[str] | None,
) -> Reading:
    """Preprocessing, labels, and what the caller wants otherwise."""
    config, match, found = understood.config, opened.match, opened.found
    if match.table.constants:
        everything |= constants(match, empty.state_dict(), everything)
    kept = {key.removeprefix(KEPT): everything.pop(key) for key in list(everything) if key.startswith(KEPT)}
    if REGISTERS in everything and _no_registers(REGISTERS, everything[REGISTERS]):
        kept[REGISTERS] = everything.pop(REGISTERS)
    prepared = stated_preprocess(found, config)
    if prepared is None:
        prepared = preprocess.DEFAULTS.get(report.origin, preprocess.of_google)(config)
        report.assumptions.append(
            f"pictures are prepared as is usual for {report.origin}; nothing beside the file says"
        )
    if "image_size" in opened.asked:  # DINOv2 has positions for 518 px, and prepares 224
        prepared = prepared_for(prepared, opened.asked["image_size"])
    model = Adapted(config, everything, prepared, stated_labels(found, config) or _numbers(config.num_classes))
    model = adapt(model, understood.wanted, labels)
    if labels is not None:
        model.labels = list(labels)
    report.adaptations = model.notes
    report.kept = sorted(kept)
    if model.config != config:
        empty = build_empty(model.config)
    describe.describe(report, empty, model.preprocess, model.labels)
    return Reading(model.config, model.state, kept, model.preprocess, model.labels, report, match, empty)


def _numbers(count: int) -> list[str]:
    return [str(index) for index in range(count)]
