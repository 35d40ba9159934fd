"""The smallest sound model there is, as a Hugging Face folder and as Google's file: the base of what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitrail.checkpoint import container

WIDTH, PATCH, PATCHES, CLASSES, MLP = 8, 4, 4, 3, 16
BLOCK = "vit.encoder.layer.0."
CONFIG: dict[str, Any] = {
    "model_type": "vit", "architectures": ["ViTForImageClassification"], "hidden_size": WIDTH, "num_hidden_layers": 1,
    "num_attention_heads": 2, "intermediate_size": MLP, "image_size": 8, "patch_size": PATCH, "num_channels": 3,
    "layer_norm_eps": 1e-12, "hidden_act": "gelu", "qkv_bias": True,
    "id2label": {"0": "cat", "1": "dog", "2": "bird"}, "label2id": {"cat": 0, "dog": 1, "bird": 2},
}  # fmt: skip


def tensors() -> dict[str, Tensor]:
    """The weights under their Hugging Face names."""
    random = torch.Generator().manual_seed(0)
    shapes = {
        "vit.embeddings.cls_token": (1, 1, WIDTH),
        "vit.embeddings.position_embeddings": (1, PATCHES + 1, WIDTH),
        "vit.embeddings.patch_embeddings.projection.weight": (WIDTH, 3, PATCH, PATCH),
        "vit.embeddings.patch_embeddings.projection.bias": (WIDTH,),
        "vit.layernorm.weight": (WIDTH,), "vit.layernorm.bias": (WIDTH,),
        "classifier.weight": (CLASSES, WIDTH), "classifier.bias": (CLASSES,),
        BLOCK + "intermediate.dense.weight": (MLP, WIDTH), BLOCK + "intermediate.dense.bias": (MLP,),
        BLOCK + "output.dense.weight": (WIDTH, MLP), BLOCK + "output.dense.bias": (WIDTH,),
    }  # fmt: skip
    for name in ("query", "key", "value"):
        shapes[f"{BLOCK}attention.attention.{name}.weight"] = (WIDTH, WIDTH)
        shapes[f"{BLOCK}attention.attention.{name}.bias"] = (WIDTH,)
    shapes |= {BLOCK + "attention.output.dense.weight": (WIDTH, WIDTH), BLOCK + "attention.output.dense.bias": (WIDTH,)}
    for name in ("layernorm_before", "layernorm_after"):
        shapes |= {f"{BLOCK}{name}.weight": (WIDTH,), f"{BLOCK}{name}.bias": (WIDTH,)}
    return {name: torch.randn(shape, generator=random) / 10 for name, shape in shapes.items()}


def folder(path: Path, config: object = CONFIG, weights: dict[str, Tensor] | None = None) -> Path:
    """A Hugging Face folder of this config and these weights."""
    path = path / "model"
    path.mkdir()
    container.write_safetensors(path / "model.safetensors", tensors() if weights is None else weights)
    (path / "config.json").write_bytes(config if isinstance(config, bytes) else json.dumps(config).encode())
    return path
