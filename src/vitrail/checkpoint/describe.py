"""Fills in the report: what a file is, and what the model in it is."""

from __future__ import annotations

import msgspec

from vitrail.checkpoint.detect import Match
from vitrail.checkpoint.files import Found
from vitrail.checkpoint.report import Report
from vitrail.checkpoint.understand import variant_name
from vitrail.config import Preprocess
from vitrail.model.vit import VisionTransformer


def opened(found: Found, match: Match, problems: list[str]) -> Report:
    """The report of a file, before anything is known about the model in it."""
    kinds = sorted({str(tensor.dtype).removeprefix("torch.") for tensor in found.tensors.values()})
    return Report(
        path=str(found.path),
        origin=match.format.name if match.format else match.table.name,
        table=match.table.name,
        prefix=match.prefix,
        dtype="+".join(kinds),
        tensors=len(found.tensors),
        ignored=match.plan.ignored,
        problems=problems,
    )


CONVENTIONS = ("hidden_act", "layer_norm_eps", "position_covers", "position_resampling", "pooling", "final_norm")
TOKENS = {"class": "class_token", "distillation": "distillation_token"}


def describe(report: Report, empty: VisionTransformer, prepared: Preprocess, labels: list[str]) -> None:
    """What the model is, in words and numbers."""
    config = empty.config
    report.variant = variant_name(config)
    report.parameters = sum(tensor.numel() for tensor in empty.state_dict().values())
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
