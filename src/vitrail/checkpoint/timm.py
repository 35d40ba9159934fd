"""timm's state dicts, and the original DeiT III, DINO and DINOv2 files, whose names are nearly the same."""

from __future__ import annotations

from collections.abc import Iterator

from vitrail.checkpoint.rules import KEPT, Rule, Table, joined, layer

BLOCK = "encoder.blocks.{i}"
PREFIXES = ("", "module.", "model.", "backbone.", "module.backbone.", "visual.trunk.", "encoder.")
IGNORED = (
    ("head.mlp.{any}", "projection head of DINO's training"),
    ("head.last_layer.{any}", "projection head of DINO's training"),
)


def resnet() -> Iterator[Rule]:
    """The hybrid's stem; R+Ti/16 has the root alone, under shorter names."""
    theirs, ours = "~patch_embed.backbone", "stem.resnet"
    unit = f"{theirs}.stages.{{s}}.blocks.{{u}}"
    for name, part in (("conv1", "1"), ("conv2", "2"), ("conv3", "3"), ("downsample.conv", "_proj")):
        yield Rule((f"{unit}.{name}.weight",), f"{ours}.stages.{{s}}.{{u}}.conv{part}.weight")
        yield from layer(f"{unit}.{name.replace('conv', 'norm')}", f"{ours}.stages.{{s}}.{{u}}.norm{part}")


def root(stem: str) -> Iterator[Rule]:
    """The first convolution of a hybrid and its norm."""
    yield Rule((f"~patch_embed.backbone.{stem}conv.weight",), "stem.resnet.root.weight")
    yield from layer(f"~patch_embed.backbone.{stem}norm", "stem.resnet.root_norm")


def attention_pool() -> Iterator[Rule]:
    """MAP pooling: the key and the value share a layer, the query has its own."""
    theirs, ours = "~attn_pool", "head.pool"
    yield Rule((f"{theirs}.latent",), f"{ours}.query")
    yield from joined((f"{theirs}.q", f"{theirs}.kv*2"), f"{ours}.qkv")
    for name in ("proj", "norm", "mlp.fc1", "mlp.fc2"):
        yield from layer(f"{theirs}.{name}", f"{ours}.{name}")


def mlp(style: str) -> Iterator[Rule]:
    """Dense or packed SwiGLU (the shapes tell which), SwiGLU in two layers, or DINOv2's own names."""
    theirs, ours = "~blocks.{i}.mlp", f"{BLOCK}.mlp"
    if style == "w12":
        yield from layer(f"{theirs}.w12", f"{ours}.fc1")
        yield from layer(f"{theirs}.w3", f"{ours}.fc2")
        return
    if style == "split":
        yield from joined((f"{theirs}.fc1_g", f"{theirs}.fc1_x"), f"{ours}.fc1")
    else:
        yield from layer(f"{theirs}.fc1", f"{ours}.fc1")
    yield from layer(f"{theirs}.fc2", f"{ours}.fc2")


def block(scale: str, mlp_style: str) -> Iterator[Rule]:
    """One block; `scale` is how LayerScale is called."""
    theirs = "~blocks.{i}"
    for name in ("norm1", "norm2", "attn.qkv", "attn.q_norm", "attn.k_norm", "attn.proj"):
        yield from layer(f"{theirs}.{name}", f"{BLOCK}.{name}")
    for number in "12":
        yield Rule((f"{theirs}.{scale.format(number)}",), f"{BLOCK}.scale{number}")
    yield from mlp(mlp_style)


def table(
    name: str,
    *,
    stem: str = "stem.",
    scale: str = "ls{}.gamma",
    mlp_style: str = "fc",
    registers: str = "reg_token",
) -> Table:
    """One way of naming, by what differs."""
    rules = (
        Rule(("~cls_token",), "tokens.class_token"),
        Rule(("~dist_token",), "tokens.distillation_token"),
        Rule((f"~{registers}",), "tokens.register_tokens"),
        Rule(("~pos_embed",), "tokens.position.table"),
        *([Rule(("~mask_token",), f"{KEPT}mask_token")] if registers == "register_tokens" else []),
        *layer("~patch_embed.proj", "stem.proj"),
        *root(stem),
        *resnet(),
        *layer("~norm_pre", "tokens.norm"),
        *block(scale, mlp_style),
        *layer("~norm", "encoder.norm"),
        *attention_pool(),
        *layer("~fc_norm", "head.norm"),
        *layer("~pre_logits.fc", "head.representation"),
        *layer("~head", "head.classifier"),
        *layer("~head_dist", "head.classifier_distilled"),
    )
    original_dinov2 = registers == "register_tokens"
    return Table(
        name=name,
        rules=rules,
        prefixes=PREFIXES,
        ignored=IGNORED,
        implies=(("position_resampling", "hf"),) if original_dinov2 else (),
        covers=("class",) if original_dinov2 else ("all", "patches"),
    )


TABLES = (
    table("timm"),
    table("timm (R+Ti hybrid)", stem=""),
    table("timm (SwiGLU in two layers)", mlp_style="split"),
    table("deit3 (original)", scale="gamma_{}"),
    table("dinov2 (original)", registers="register_tokens"),
    table("dinov2 (original, SwiGLU)", registers="register_tokens", mlp_style="w12"),
)
