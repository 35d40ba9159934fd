"""From tensors, and what lies beside them, to a config: what is certain, stated, usual, guessed; and what is missing.

Order, strongest first: the tensors' shapes, the caller (for what shapes do not show), the config beside the file,
what the format's own software computes with, the known variant of the same sizes. Whatever is not certain, stated or
asked for is reported as an assumption.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from vitrail.checkpoint import positions, shapes
from vitrail.checkpoint.detect import Match
from vitrail.checkpoint.understanding import Understanding, shown
from vitrail.config import ResNetStem, ViTConfig, as_pair, build
from vitrail.errors import CheckpointError
from vitrail.model.variants import HYBRIDS, SIZES

ADAPTABLE = ("image_size", "patch_size", "num_channels", "num_classes")  # adapt.py turns a model into one of these
DINOV2_GIANT = (1536, 40, 4096, 24)


def understand(
    match: Match,
    tensors: Mapping[str, Tensor],
    state: Mapping[str, Tensor],
    stated: Mapping[str, Any],
    asked: Mapping[str, Any],
) -> Understanding:
    """The config of the model whose tensors these are (shapes suffice)."""
    certain = shapes.fields(state) | _heads_in_kernels(match, tensors)
    _must_agree(certain, stated, "the config beside it says")
    _must_agree(certain, {name: value for name, value in asked.items() if name not in ADAPTABLE}, "the caller says")
    usual = dict(match.format.conventions if match.format else {}) | dict(match.table.implies)
    # big_vision's stems and timm's differ in more than sizes, so a stem is put together field by field
    stem = _stem(match, certain, stated, asked)
    interpreted = {name: value for name, value in asked.items() if name not in ADAPTABLE}
    found = Understanding({**usual, **stated, **interpreted, **certain, "resnet": stem})
    _note_conventions(found, match, usual, {**stated, **interpreted})
    _settle_activation(found, stated, asked)
    _settle_heads(found, state)
    _settle_pooling(found, stated, asked, "head.norm.weight" in state)
    _refuse_a_pool_of_patches(found, match)
    if certain.get("layer_scale", ...) is not None and found.fields.get("layer_scale") is None:
        found.assume("layer_scale", 1e-5, "its initial value matters to training from scratch only")
    positions.settle(found, match.table, state, stated, asked)
    found.wanted = {
        name: asked[name] for name in ADAPTABLE if name in asked and asked[name] != found.fields.get(name, asked[name])
    }
    return found


def _must_agree(certain: Mapping[str, Any], said: Mapping[str, Any], who: str) -> None:
    for name in sorted(certain.keys() & said.keys()):
        value, tensors_say = said[name], certain[name]
        if name in ("resnet", "layer_scale"):  # the tensors show whether there is one, not its numbers
            value, tensors_say = (None if item is None else "given" for item in (value, tensors_say))
        if name != "num_classes" and as_pair(value) != as_pair(tensors_say):
            raise _contradiction(name, tensors_say, value, who)


def _contradiction(name: str, tensors_say: Any, value: Any, who: str) -> CheckpointError:
    return CheckpointError(
        f"The tensors say {name}={shown(tensors_say)}, but {who} {name}={shown(value)}.",
        "Both describe the same model.",
        f"Leave {name} out, or use the file it belongs to.",
    )


def _heads_in_kernels(match: Match, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Google's kernels are split into heads, so they say how many there are."""
    kernels = [
        tensors[step.sources[0][0]].shape[-2:]
        for step in match.plan.steps
        if "heads_in" in step.row.rule.how and step.ours.startswith("encoder.")
    ]
    if not kernels:
        return {}
    heads, head_dim = kernels[0]
    if any(tuple(kernel) != (heads, head_dim) for kernel in kernels):
        raise CheckpointError("The blocks have different numbers of heads.", "All alike.", "")
    return {"num_attention_heads": heads, "head_dim": head_dim}


def _stem(
    match: Match, certain: Mapping[str, Any], stated: Mapping[str, Any], asked: Mapping[str, Any]
) -> ResNetStem | None:
    if certain["resnet"] is None:
        return None
    usual = match.format.stem if match.format else {}
    said = [_plain(source.get("resnet")) for source in (stated, asked)]
    return build(ResNetStem, {**usual, **said[0], **said[1], **certain["resnet"]})


def _plain(stem: Any) -> dict[str, Any]:
    if isinstance(stem, ResNetStem):
        return {name: getattr(stem, name) for name in stem.__struct_fields__}
    return dict(stem or {})


def _note_conventions(found: Understanding, match: Match, usual: Mapping[str, Any], said: Mapping[str, Any]) -> None:
    silent = {name: value for name, value in usual.items() if name not in said and name != "initializer"}
    if found.fields["resnet"] is not None and "resnet" not in said and match.format:
        silent |= match.format.stem
    if silent:
        values = ", ".join(f"{name}={shown(value)}" for name, value in silent.items())
        found.assumptions.append(f"{values}: as {match.table.name.partition(' (')[0]} computes; the file does not say")


def _settle_activation(found: Understanding, stated: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    if found.fields["mlp"] == "swiglu" and "hidden_act" not in {**stated, **asked}:
        found.assume("hidden_act", "silu", "SwiGLU gates with it")


def _settle_heads(found: Understanding, state: Mapping[str, Tensor]) -> None:
    """How many heads share a fused weight, which its shape does not say."""
    fields = found.fields
    width = state["encoder.blocks.0.attn.proj.weight"].shape[-1] if "encoder.blocks.0.attn.proj.weight" in state else 0
    if fields.get("kept_heads") is not None:
        return
    if "num_attention_heads" not in fields and fields.get("head_dim"):
        fields["num_attention_heads"] = width // fields["head_dim"]
    if "num_attention_heads" not in fields:
        variant = variant_heads(fields)
        if variant is None:
            fits = [heads for heads in range(1, 65) if width and width % heads == 0]
            raise CheckpointError(
                f"The file does not say num_attention_heads, and no known model has these sizes: {_sizes(fields)}.",
                f"{width} columns divide into {', '.join(map(str, fits[:8]))}… heads; which, only its author knows.",
                "Say it: vitrail.load(path, num_attention_heads=…), --set num_attention_heads=…, or a config.json "
                "beside the file.",
            )
        found.assume("num_attention_heads", variant[1], f"as in {variant[0]}, which has the same sizes")
    heads = fields["num_attention_heads"]
    if not isinstance(heads, int) or heads < 1 or width % heads:
        raise CheckpointError(
            f"{width} columns of attention do not divide into {heads} heads.", "A divisor of the width.", ""
        )
    if fields.get("head_dim") is None and width:
        fields["head_dim"] = width // heads


def variant_heads(fields: Mapping[str, Any]) -> tuple[str, int] | None:
    """The known model of these sizes, and its heads."""
    sizes = tuple(fields[name] for name in ("hidden_size", "num_hidden_layers", "intermediate_size"))
    if sizes == DINOV2_GIANT[:3] and fields["mlp"] == "swiglu":
        return "DINOv2 g", DINOV2_GIANT[3]
    return next((("ViT-" + name, row[3]) for name, row in SIZES.items() if row[:3] == sizes), None)


def variant_name(config: ViTConfig) -> str | None:
    """What a model of these sizes is called: B/16, R50+L/32; None where it has no name."""
    sizes = (config.hidden_size, config.num_hidden_layers, config.intermediate_size, config.num_attention_heads)
    if sizes == DINOV2_GIANT and config.mlp == "swiglu":
        return f"DINOv2 g/{config.patch_size[0]}"
    size = next((name for name, row in SIZES.items() if row == sizes), None)
    if size is None or config.mlp != "dense" or config.patch_size[0] != config.patch_size[1]:
        return None
    if config.resnet is None:
        return f"{size}/{config.patch_size[0]}"
    stem = (config.resnet.layers, config.patch_size[0])
    return next((name for name, row in HYBRIDS.items() if row == stem and f"+{size}/" in name), None)


def _refuse_a_pool_of_patches(found: Understanding, match: Match) -> None:
    """timm's attention pool passes by class token and registers; ours reads every token."""
    others = found.fields["class_token"] or found.fields["num_register_tokens"]
    if found.fields["pooling"] == "map" and others and match.format is not None and match.format.name == "timm":
        raise CheckpointError(
            "The file has attention pooling beside a class token or registers.",
            "timm pools the patches alone; the pool here reads every token.",
            "There is no such model here yet.",
        )


def _settle_pooling(
    found: Understanding, stated: Mapping[str, Any], asked: Mapping[str, Any], norm_after: bool
) -> None:
    fields = found.fields
    if "pooling" in {**stated, **asked, **fields}:
        return
    if not fields["class_token"]:
        found.assume("pooling", "mean", "there is no class token")
    elif norm_after and not fields["pre_norm"]:
        found.assume("pooling", "mean", "its norm comes after pooling, as timm has it where it averages patches")
    else:
        fields["pooling"] = "token"


def _sizes(fields: Mapping[str, Any]) -> str:
    return f"{fields['hidden_size']} wide, {fields['num_hidden_layers']} blocks, MLP {fields['intermediate_size']}"
