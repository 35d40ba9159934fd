"""Our own names, for models no other library has: the keys of our state dict as they are."""

from __future__ import annotations

from vitrail.checkpoint.rules import KEPT, Rule, Table, layer

BLOCK, UNIT, POOL = "encoder.blocks.{i}", "stem.resnet.stages.{s}.{u}", "head.pool"

LAYERS = (
    "stem.proj",
    "tokens.norm",
    *(f"{BLOCK}.{part}" for part in ("norm1", "attn.qkv", "attn.q_norm", "attn.k_norm", "attn.proj")),
    *(f"{BLOCK}.{part}" for part in ("norm2", "mlp.fc1", "mlp.fc2")),
    "encoder.norm",
    *(f"{POOL}.{part}" for part in ("qkv", "proj", "norm", "mlp.fc1", "mlp.fc2")),
    *(f"head.{part}" for part in ("norm", "representation", "classifier", "classifier_distilled")),
    *("stem.resnet.root_norm", f"{UNIT}.norm1", f"{UNIT}.norm2", f"{UNIT}.norm3", f"{UNIT}.norm_proj"),
)
ALONE = (
    *("tokens.class_token", "tokens.distillation_token", "tokens.register_tokens", "tokens.position.table"),
    *(f"{BLOCK}.attn.query_value_bias", f"{BLOCK}.scale1", f"{BLOCK}.scale2", f"{POOL}.query"),
    "stem.resnet.root.weight",
    *(f"{UNIT}.{conv}.weight" for conv in ("conv1", "conv2", "conv3", "conv_proj")),
)
OURS = (*(f"{name}.{leaf}" for name in LAYERS for leaf in ("weight", "bias")), *ALONE)

TABLES = (
    Table(
        name="vitrail",
        rules=(
            *(rule for name in LAYERS for rule in layer(name, name)),
            *(Rule((name,), name) for name in ALONE),
            Rule(("kept.mask_token",), f"{KEPT}mask_token"),
        ),
    ),
)
