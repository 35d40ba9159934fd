"""The stages of a Vision Transformer, one row each: what others call it, what it computes, what it owns.

A key is the probe's name for the stage's result, with {i} for the number of a block or of a stem's stage. `hf` is
the vocabulary of Hugging Face's ViT (ViTEmbeddings, ViTSelfAttention ...), `google` that of
google-research/vision_transformer and jeonsworld/ViT-pytorch (Embeddings, Attention, Mlp, Block, Encoder).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Row:
    """One stage. `owns`: parameters by name, and how many stages share them; `reads`: "" is the stage before."""

    hf: str
    google: str
    formula: str
    owns: dict[str, int] = field(default_factory=dict)
    reads: str = ""


NORM = "(x - mean) / std * scale + shift"

STAGES: dict[str, Row] = {
    "images": Row("pixel_values", "x", "the picture, normalised"),
    # the hybrid's stem
    "stem.root": Row(
        *("bit.embedder.convolution", "conv_root", "7x7 convolution, stride 2, weights standardised"),
        {"stem.resnet.root": 1},
    ),
    "stem.pool": Row(
        *("bit.embedder.norm, pooler", "gn_root, max_pool", "max 3x3 of relu(group norm), stride 2"),
        {"stem.resnet.root_norm": 1},
    ),
    "stem.stages.{i}": Row(
        *("bit.encoder.stages.{i}", "block{n}", "{units} x relu(shortcut + conv 1x1, 3x3, 1x1)"),
        {"stem.resnet.stages.{i}": 1},
    ),
    # embeddings
    "stem.out": Row(
        *("ViTPatchEmbeddings.projection", "embedding", "W . patch + b, patches of {patch}"), {"stem.proj": 1}
    ),
    "tokens.patches": Row("flatten(2).transpose(1, 2)", "reshape", "the grid, row by row"),
    "tokens.class": Row(
        "cls_token.expand", "cls", "one learned token, the same for every picture", {"tokens.class_token": 1}, "nothing"
    ),
    "tokens.distillation": Row(
        "distillation_token.expand", "-", "DeiT's second learned token", {"tokens.distillation_token": 1}, "nothing"
    ),
    "tokens.registers": Row(
        "register_tokens.expand", "-", "learned tokens of no patch", {"tokens.register_tokens": 1}, "nothing"
    ),
    "tokens.concat": Row("torch.cat", "concatenate", "[learned tokens; patches]", reads="tokens.patches"),
    "tokens.positions": Row(
        "position_embeddings", "pos_embedding", "one row per position", {"tokens.position": 1}, "nothing"
    ),
    "tokens.positioned": Row("ViTEmbeddings: + positions", "posembed_input", "x + positions", reads="tokens.concat"),
    "tokens.out": Row("ViTEmbeddings.dropout", "Dropout", "{embed}dropout", {"tokens.norm": 1}),
    # a block
    "blocks.{i}.norm1": Row("ViTLayer.layernorm_before", "LayerNorm_0", NORM, {"encoder.blocks.{i}.norm1": 1}),
    "blocks.{i}.attn.q": Row(
        *("ViTSelfAttention.query", "Attention/query", "x Wq + bq, in heads"),
        {
            "encoder.blocks.{i}.attn.qkv": 3,
            "encoder.blocks.{i}.attn.query_value_bias": 2,
            "encoder.blocks.{i}.attn.q_norm": 1,
        },
        "blocks.{i}.norm1",
    ),
    "blocks.{i}.attn.k": Row(
        *("ViTSelfAttention.key", "Attention/key", "x Wk + bk, in heads"),
        {"encoder.blocks.{i}.attn.qkv": 3, "encoder.blocks.{i}.attn.k_norm": 1},
        "blocks.{i}.norm1",
    ),
    "blocks.{i}.attn.v": Row(
        *("ViTSelfAttention.value", "Attention/value", "x Wv + bv, in heads"),
        {"encoder.blocks.{i}.attn.qkv": 3, "encoder.blocks.{i}.attn.query_value_bias": 2},
        "blocks.{i}.norm1",
    ),
    "blocks.{i}.attn.scores": Row(
        "attention_scores", "query . key", "q k^T / sqrt({head_dim})", reads="blocks.{i}.attn.q"
    ),
    "blocks.{i}.attn.weights": Row("attention_probs", "softmax", "softmax over keys, dropout"),
    "blocks.{i}.attn.context": Row("context_layer", "weights . value", "weights v, times the head mask"),
    "blocks.{i}.attn.merged": Row("permute, view", "reshape", "heads side by side"),
    "blocks.{i}.attn.out": Row(
        "ViTSelfOutput.dense", "Attention/out", "x Wo + bo, dropout", {"encoder.blocks.{i}.attn.proj": 1}
    ),
    "blocks.{i}.attn.residual": Row(
        "ViTLayer: + hidden_states", "x + inputs", "block input + {scale}x", {"encoder.blocks.{i}.scale1": 1}
    ),
    "blocks.{i}.norm2": Row("ViTLayer.layernorm_after", "LayerNorm_2", NORM, {"encoder.blocks.{i}.norm2": 1}),
    "blocks.{i}.mlp.hidden": Row(
        "ViTIntermediate.dense", "MlpBlock_3/Dense_0", "x W1 + b1", {"encoder.blocks.{i}.mlp.fc1": 1}
    ),
    "blocks.{i}.mlp.activated": Row("intermediate_act_fn", "gelu", "{act}"),
    "blocks.{i}.mlp.out": Row(
        "ViTOutput.dense", "MlpBlock_3/Dense_1", "x W2 + b2, dropout", {"encoder.blocks.{i}.mlp.fc2": 1}
    ),
    "blocks.{i}.out": Row(
        "ViTOutput: + input_tensor", "x + y", "attention residual + {scale}x", {"encoder.blocks.{i}.scale2": 1}
    ),
    # the head
    "norm.out": Row("ViTModel.layernorm", "encoder_norm", NORM, {"encoder.norm": 1}),
    "head.pooled": Row("sequence_output[:, 0]", "x[:, 0]", "{pool}", {"head.pool": 1, "head.norm": 1}),
    "head.representation": Row("ViTPooler: dense, tanh", "pre_logits", "{bend}(x W + b)", {"head.representation": 1}),
    "logits": Row(*("classifier", "head", "x W + b"), {"head.classifier": 1, "head.classifier_distilled": 1}),
}


def row_of(name: str) -> tuple[Row, int | None]:
    """The row of a probe name, and the number in the name if it has one."""
    number = re.search(r"\.(\d+)", name)
    return STAGES[re.sub(r"\.\d+", ".{i}", name)], int(number[1]) if number else None
