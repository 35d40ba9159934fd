"""Hugging Face transformers: ViT, DeiT, I-JEPA, ViT-Hybrid, DINOv2 and DINOv3, SigLIP's and CLIP's vision towers.

Two generations of names: what `save_pretrained` writes (also in transformers 5), and what `state_dict()` of
transformers 5.10 and later says. Both are read, the first is written.
"""

from __future__ import annotations

from collections.abc import Iterator

from vitrail.checkpoint.rules import KEPT, Rule, Table, joined, layer

BODY = ("vit.", "deit.", "ijepa.", "")
BLOCK = "encoder.blocks.{i}"
MASK = Rule(("~embeddings.mask_token",), f"{KEPT}mask_token")
TEXT_TOWER = (
    ("text_model.{any}", "text tower"),
    ("text_projection.{any}", "text tower"),
    ("logit_scale", "temperature of the image-text loss"),
    ("logit_bias", "bias of the image-text loss"),
    ("vision_model.embeddings.position_ids", "a count from zero"),
    ("~embeddings.position_ids", "a count from zero"),
)


def kept(theirs: str) -> Iterator[Rule]:
    """Weight and bias of a layer our model does not use; it keeps its own name."""
    yield from layer(theirs, KEPT + theirs.replace("~", ""))


# ViT and what descends from it: DeiT, I-JEPA, the hybrid.
def vit_block(on_disk: bool) -> Iterator[Rule]:
    """One block, by the names on disk or by those in the memory of transformers 5.10 and later."""
    theirs = "~encoder.layer.{i}" if on_disk else "~layers.{i}"
    yield from layer(f"{theirs}.layernorm_before", f"{BLOCK}.norm1")
    yield from layer(f"{theirs}.layernorm_after", f"{BLOCK}.norm2")
    if on_disk:
        attention = f"{theirs}.attention"
        yield from joined((f"{attention}.attention.{name}" for name in ("query", "key", "value")), f"{BLOCK}.attn.qkv")
        yield from layer(f"{attention}.output.dense", f"{BLOCK}.attn.proj")
        yield from layer(f"{theirs}.intermediate.dense", f"{BLOCK}.mlp.fc1")
        yield from layer(f"{theirs}.output.dense", f"{BLOCK}.mlp.fc2")
    else:
        yield from joined((f"{theirs}.attention.{name}_proj" for name in "qkv"), f"{BLOCK}.attn.qkv")
        yield from layer(f"{theirs}.attention.o_proj", f"{BLOCK}.attn.proj")
        yield from layer(f"{theirs}.mlp.fc1", f"{BLOCK}.mlp.fc1")
        yield from layer(f"{theirs}.mlp.fc2", f"{BLOCK}.mlp.fc2")


def bit() -> Iterator[Rule]:
    """The removed ViT-Hybrid's stem."""
    patches, ours = "~embeddings.patch_embeddings", "stem.resnet"
    root = f"{patches}.backbone.bit.embedder"
    yield Rule((f"{root}.convolution.weight",), f"{ours}.root.weight")
    yield from layer(f"{root}.norm", f"{ours}.root_norm")
    unit = f"{patches}.backbone.bit.encoder.stages.{{s}}.layers.{{u}}"
    for theirs, part in (("conv1", "1"), ("conv2", "2"), ("conv3", "3"), ("downsample.conv", "_proj")):
        yield Rule((f"{unit}.{theirs}.weight",), f"{ours}.stages.{{s}}.{{u}}.conv{part}.weight")
        yield from layer(f"{unit}.{theirs.replace('conv', 'norm')}", f"{ours}.stages.{{s}}.{{u}}.norm{part}")


def vit_head(task: str) -> Iterator[Rule]:
    """Pooler or classifiers. A file for classification may carry a pooler that its classifier does not use."""
    if task == "features":
        yield from layer("~pooler.dense", "head.representation")
    elif task == "teacher":
        yield from layer("cls_classifier", "head.classifier")
        yield from layer("distillation_classifier", "head.classifier_distilled")
    else:
        yield from layer("classifier", "head.classifier")
    if task != "features":
        yield from kept("~pooler.dense")
    yield from kept("decoder.{n}")  # masked image modelling


def vit(on_disk: bool, task: str, second: str | None) -> Table:
    """`task`: features, classes or teacher; `second`: what the DeiT token is to us, where there is one."""
    rules = (
        Rule(("~embeddings.cls_token",), "tokens.class_token"),
        *([Rule(("~embeddings.distillation_token",), second)] if second else []),
        Rule(("~embeddings.position_embeddings",), "tokens.position.table"),
        MASK,
        *layer("~embeddings.patch_embeddings.projection", "stem.proj"),
        *bit(),
        *vit_block(on_disk),
        *layer("~layernorm", "encoder.norm"),
        *vit_head(task),
    )
    words = ["names on disk" if on_disk else "names in memory"]
    unread = second == "tokens.register_tokens"
    words += ["distillation token unread"] if unread else []
    covers = ("all",) if unread else ("class",)
    return Table(name=f"huggingface ViT for {task} ({', '.join(words)})", rules=rules, prefixes=BODY, covers=covers)


VIT_TABLES = tuple(
    vit(on_disk, task, second)
    for on_disk in (True, False)
    for task, second in (
        ("features", "tokens.distillation_token"),
        ("classes", None),
        ("teacher", "tokens.distillation_token"),
        # DeiTForImageClassification reads the class token only: to us the other token is a register
        ("classes", "tokens.register_tokens"),
    )
)


# DINOv2 and DINOv3
def dinov2(on_disk: bool, gated: bool, registers: bool) -> Table:
    """DINOv2; the form with registers stretches its position table another way."""
    theirs = "~encoder.layer.{i}"
    names = [f"attention.{n}" for n in ("query", "key", "value")] if on_disk else [f"{n}_proj" for n in "qkv"]
    if not gated:
        mlp = [*layer(f"{theirs}.mlp.fc1", f"{BLOCK}.mlp.fc1"), *layer(f"{theirs}.mlp.fc2", f"{BLOCK}.mlp.fc2")]
    elif on_disk:
        mlp = [*layer(f"{theirs}.mlp.weights_in", f"{BLOCK}.mlp.fc1")]
        mlp += layer(f"{theirs}.mlp.weights_out", f"{BLOCK}.mlp.fc2")
    else:
        mlp = [*joined((f"{theirs}.mlp.{name}_proj" for name in ("gate", "up")), f"{BLOCK}.mlp.fc1")]
        mlp += layer(f"{theirs}.mlp.down_proj", f"{BLOCK}.mlp.fc2")
    rules = (
        Rule(("~embeddings.cls_token",), "tokens.class_token"),
        *([Rule(("~embeddings.register_tokens",), "tokens.register_tokens")] if registers else []),
        Rule(("~embeddings.position_embeddings",), "tokens.position.table"),
        MASK,
        *layer("~embeddings.patch_embeddings.projection", "stem.proj"),
        *layer(f"{theirs}.norm1", f"{BLOCK}.norm1"),
        *layer(f"{theirs}.norm2", f"{BLOCK}.norm2"),
        *joined((f"{theirs}.attention.{name}" for name in names), f"{BLOCK}.attn.qkv"),
        *layer(f"{theirs}.attention.{'output.dense' if on_disk else 'o_proj'}", f"{BLOCK}.attn.proj"),
        Rule((f"{theirs}.layer_scale1.lambda1",), f"{BLOCK}.scale1"),
        Rule((f"{theirs}.layer_scale2.lambda1",), f"{BLOCK}.scale2"),
        *mlp,
        *layer("~layernorm", "encoder.norm"),
        *layer("classifier", "head.classifier"),
    )
    words = ["names on disk" if on_disk else "names in memory"]
    words += ["SwiGLU"] if gated else []
    return Table(
        name=f"huggingface DINOv2{' with registers' if registers else ''} ({', '.join(words)})",
        rules=rules,
        prefixes=("dinov2_with_registers." if registers else "dinov2.", ""),
        implies=(("layer_norm_eps", 1e-6), ("position_resampling", "timm" if registers else "hf")),
        covers=("class",),
    )


def dinov3(on_disk: bool, gated: bool, key_bias: bool) -> Table:
    """DINOv3: rotary positions, so no table; usually no bias on the keys."""
    theirs = "~layer.{i}" if on_disk else "~model.layer.{i}"
    attention = f"{theirs}.attention"
    biases = tuple(f"{attention}.{name}_proj.bias" for name in ("qkv" if key_bias else "qv"))
    fc1 = joined((f"{theirs}.mlp.{n}_proj" for n in ("gate", "up")), f"{BLOCK}.mlp.fc1") if gated else None
    rules = (
        Rule(("~embeddings.cls_token",), "tokens.class_token"),
        Rule(("~embeddings.register_tokens",), "tokens.register_tokens"),
        MASK,
        *layer("~embeddings.patch_embeddings", "stem.proj"),
        *layer(f"{theirs}.norm1", f"{BLOCK}.norm1"),
        *layer(f"{theirs}.norm2", f"{BLOCK}.norm2"),
        Rule(tuple(f"{attention}.{name}_proj.weight" for name in "qkv"), f"{BLOCK}.attn.qkv.weight"),
        Rule(biases, f"{BLOCK}.attn.qkv.bias" if key_bias else f"{BLOCK}.attn.query_value_bias"),
        *layer(f"{attention}.o_proj", f"{BLOCK}.attn.proj"),
        Rule((f"{theirs}.layer_scale1.lambda1",), f"{BLOCK}.scale1"),
        Rule((f"{theirs}.layer_scale2.lambda1",), f"{BLOCK}.scale2"),
        *(fc1 or layer(f"{theirs}.mlp.up_proj", f"{BLOCK}.mlp.fc1")),
        *layer(f"{theirs}.mlp.down_proj", f"{BLOCK}.mlp.fc2"),
        *layer("~norm", "encoder.norm"),
    )
    words = ["names on disk" if on_disk else "names in memory"]
    words += ["SwiGLU"] if gated else []
    words += ["with key bias"] if key_bias else []
    implies = (("layer_norm_eps", 1e-5), ("position", "rotary"))
    return Table(name=f"huggingface DINOv3 ({', '.join(words)})", rules=rules, implies=implies)


# SigLIP and CLIP: only the half that sees
def tower_block() -> Iterator[Rule]:
    """One block of a vision tower."""
    theirs = "~encoder.layers.{i}"
    yield from layer(f"{theirs}.layer_norm1", f"{BLOCK}.norm1")
    yield from layer(f"{theirs}.layer_norm2", f"{BLOCK}.norm2")
    yield from joined((f"{theirs}.self_attn.{name}_proj" for name in "qkv"), f"{BLOCK}.attn.qkv")
    yield from layer(f"{theirs}.self_attn.out_proj", f"{BLOCK}.attn.proj")
    yield from layer(f"{theirs}.mlp.fc1", f"{BLOCK}.mlp.fc1")
    yield from layer(f"{theirs}.mlp.fc2", f"{BLOCK}.mlp.fc2")


def siglip(classes: bool) -> Table:
    """SigLIP: attention pooling for features; the mean of all tokens for classes, the pool left unused."""
    ours = KEPT + "head" if classes else "head.pool"
    qkv = "attention.in_proj" if classes else "qkv"
    proj, norm = ("attention.out_proj", "layernorm") if classes else ("proj", "norm")
    joint = "_" if classes else "."
    rules = (
        *layer("~embeddings.patch_embedding", "stem.proj"),
        Rule(("~embeddings.position_embedding.weight",), "tokens.position.table", "rows"),
        *tower_block(),
        *layer("~post_layernorm", "encoder.norm"),
        Rule(("~head.probe",), f"{ours}.{'probe' if classes else 'query'}"),
        Rule(("~head.attention.in_proj_weight",), f"{ours}.{qkv}{joint}weight"),
        Rule(("~head.attention.in_proj_bias",), f"{ours}.{qkv}{joint}bias"),
        *layer("~head.attention.out_proj", f"{ours}.{proj}"),
        *layer("~head.layernorm", f"{ours}.{norm}"),
        *layer("~head.mlp.fc1", f"{ours}.mlp.fc1"),
        *layer("~head.mlp.fc2", f"{ours}.mlp.fc2"),
        *(layer("classifier", "head.classifier") if classes else ()),
    )
    return Table(
        name=f"huggingface SigLIP for {'classes' if classes else 'features'}",
        rules=rules,
        prefixes=("vision_model.", ""),
        ignored=TEXT_TOWER,
        implies=(("hidden_act", "gelu_tanh"), ("layer_norm_eps", 1e-6)),
    )


CLIP = Table(
    name="huggingface CLIP vision tower",
    rules=(
        Rule(("~embeddings.class_embedding",), "tokens.class_token", "token"),
        Rule(("~embeddings.patch_embedding.weight",), "stem.proj.weight"),
        Rule(("~embeddings.position_embedding.weight",), "tokens.position.table", "rows"),
        *layer("~pre_layrnorm", "tokens.norm"),
        *tower_block(),
        *layer("~post_layernorm", "head.norm"),
        Rule(("visual_projection.weight",), f"{KEPT}visual_projection.weight"),
    ),
    prefixes=("vision_model.", ""),
    ignored=TEXT_TOWER,
    implies=(("hidden_act", "quick_gelu"), ("layer_norm_eps", 1e-5)),
)

TABLES = (
    *VIT_TABLES,
    *(
        dinov2(on_disk, gated, registers)
        for on_disk in (True, False)
        for registers in (False, True)
        for gated in (False, True)
    ),
    siglip(classes=False),
    siglip(classes=True),
    CLIP,
    *(
        dinov3(on_disk, gated, key_bias)
        for on_disk in (True, False)
        for gated in (False, True)
        for key_bias in (False, True)
    ),
)
