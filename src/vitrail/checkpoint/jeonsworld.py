"""jeonsworld/ViT-pytorch: plain models and the R50 hybrid.

Its hybrid is not Google's model: it pads symmetrically and norms every channel of a projected shortcut by itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from vitrail.checkpoint.rules import Rule, Table, joined, layer

THEIRS, OURS = "~transformer.encoder.layer.{i}", "encoder.blocks.{i}"


def resnet() -> Iterator[Rule]:
    """The hybrid's stem; stages and units count from one."""
    theirs, ours = "~transformer.embeddings.hybrid_model", "stem.resnet"
    yield Rule((f"{theirs}.root.conv.weight",), f"{ours}.root.weight")
    yield from layer(f"{theirs}.root.gn", f"{ours}.root_norm")
    unit, stage = f"{theirs}.body.block{{s+1}}.unit{{u+1}}", f"{ours}.stages.{{s}}.{{u}}"
    for conv, norm, part in (
        ("conv1", "gn1", "1"),
        ("conv2", "gn2", "2"),
        ("conv3", "gn3", "3"),
        ("downsample", "gn_proj", "_proj"),
    ):
        yield Rule((f"{unit}.{conv}.weight",), f"{stage}.conv{part}.weight")
        yield from layer(f"{unit}.{norm}", f"{stage}.norm{part}")


TABLES = (
    Table(
        name="jeonsworld",
        rules=(
            Rule(("~transformer.embeddings.cls_token",), "tokens.class_token"),
            Rule(("~transformer.embeddings.position_embeddings",), "tokens.position.table"),
            *layer("~transformer.embeddings.patch_embeddings", "stem.proj"),
            *resnet(),
            *layer(f"{THEIRS}.attention_norm", f"{OURS}.norm1"),
            *joined((f"{THEIRS}.attn.{name}" for name in ("query", "key", "value")), f"{OURS}.attn.qkv"),
            *layer(f"{THEIRS}.attn.out", f"{OURS}.attn.proj"),
            *layer(f"{THEIRS}.ffn_norm", f"{OURS}.norm2"),
            *layer(f"{THEIRS}.ffn.fc1", f"{OURS}.mlp.fc1"),
            *layer(f"{THEIRS}.ffn.fc2", f"{OURS}.mlp.fc2"),
            *layer("~transformer.encoder.encoder_norm", "encoder.norm"),
            *layer("~head", "head.classifier"),
        ),
        prefixes=("", "module.", "model."),
    ),
)
