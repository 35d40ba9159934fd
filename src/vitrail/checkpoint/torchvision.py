"""torchvision's VisionTransformer: vit_b_16 to vit_h_14."""

from __future__ import annotations

from vitrail.checkpoint.rules import Rule, Table, layer

THEIRS, OURS = "~encoder.layers.encoder_layer_{i}", "encoder.blocks.{i}"


def table(name: str, fc1: str, fc2: str) -> Table:
    """`fc1` and `fc2` are the names of the MLP's two layers."""
    rules = (
        Rule(("~class_token",), "tokens.class_token"),
        Rule(("~encoder.pos_embedding",), "tokens.position.table"),
        *layer("~conv_proj", "stem.proj"),
        *layer(f"{THEIRS}.ln_1", f"{OURS}.norm1"),
        Rule((f"{THEIRS}.self_attention.in_proj_weight",), f"{OURS}.attn.qkv.weight"),
        Rule((f"{THEIRS}.self_attention.in_proj_bias",), f"{OURS}.attn.qkv.bias"),
        *layer(f"{THEIRS}.self_attention.out_proj", f"{OURS}.attn.proj"),
        *layer(f"{THEIRS}.ln_2", f"{OURS}.norm2"),
        *layer(f"{THEIRS}.mlp.{fc1}", f"{OURS}.mlp.fc1"),
        *layer(f"{THEIRS}.mlp.{fc2}", f"{OURS}.mlp.fc2"),
        *layer("~encoder.ln", "encoder.norm"),
        *layer("~heads.pre_logits", "head.representation"),
        *layer("~heads.head", "head.classifier"),
    )
    return Table(name=name, rules=rules, prefixes=("", "module.", "model."))


TABLES = (table("torchvision", "0", "3"), table("torchvision (before 0.13)", "linear_1", "linear_2"))
