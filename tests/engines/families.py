"""A tiny model of every family a config can express, with weights that leave no term out, and the truth about each."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitrail.config import ResNetStem, ViTConfig, build
from vitrail.engines.base import Output
from vitrail.model.vit import VisionTransformer, create

TINY: dict[str, Any] = {
    "image_size": (32, 48),
    "patch_size": 8,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "num_classes": 7,
}
STAGES = ResNetStem(layers=(1, 2), width=32)
PORTED = ResNetStem(
    layers=(1, 1), width=32, padding="symmetric", shortcut_groups="per_channel", standardization="var_plus"
)
FAMILIES: dict[str, dict[str, Any]] = {
    "plain": {},
    "registers": {"num_register_tokens": 4},
    "distilled": {"distillation_token": True},
    "swiglu": {"mlp": "swiglu", "hidden_act": "silu"},
    "rotary": {"position": "rotary", "num_register_tokens": 2},
    "sincos, no class token": {"position": "sincos", "class_token": False, "pooling": "mean"},
    "no positions, wide heads": {"position": "none", "head_dim": 12},
    "another grid's table": {"position_grid": (3, 5)},
    "map": {"pooling": "map", "class_token": False},
    "map, norm after pooling, gated": {"pooling": "map", "final_norm": "pooled", "mlp": "swiglu"},
    "mean": {"pooling": "mean"},
    "mean, norm after pooling": {"pooling": "mean", "final_norm": "pooled", "class_token": False},
    "token, norm after pooling": {"final_norm": "pooled", "distillation_token": True},
    "token and mean": {"pooling": "token_and_mean"},
    "representation": {"representation_size": 16},
    "MLP head": {"representation_size": 16, "representation_act": "gelu"},
    "no classifier": {"num_classes": 0},
    "no classifier, token and mean": {"num_classes": 0, "pooling": "token_and_mean"},
    "clip": {"pre_norm": True, "patch_bias": False, "hidden_act": "quick_gelu"},
    "gelu tanh": {"hidden_act": "gelu_tanh"},
    "relu": {"hidden_act": "relu"},
    "layer scale": {"layer_scale": 0.1},
    "dinov2": {
        "layer_scale": 0.1,
        "num_register_tokens": 4,
        "mlp": "swiglu",
        "hidden_act": "silu",
        "pooling": "token_and_mean",
    },
    "qk norm": {"qk_norm": True},
    "keys without bias": {"key_bias": False},
    "attention without bias": {"qkv_bias": False},
    "pruned": {"kept_heads": ((0, 2), (1,))},
    "first layer without heads": {"kept_heads": ((), (1,))},
    "last layer without heads": {"kept_heads": ((0,), ())},
    "five channels": {"num_channels": 5},
    "ragged edge": {"ragged_edge": "crop", "image_size": (35, 50)},
    "hybrid": {"resnet": STAGES, "patch_size": (1, 2)},
    "hybrid, ported": {"resnet": PORTED, "patch_size": 1},
    "hybrid, root only": {"resnet": ResNetStem(layers=(), width=32), "patch_size": 2},
}


def tiny(family: str) -> VisionTransformer:
    """The family's model. Norms have scales and shifts, biases and tokens are far from zero: nothing cancels."""
    model = create(build(ViTConfig, TINY | FAMILIES[family]), seed=0)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            one = 1.0 if "norm" in name and name.endswith("weight") else 0.0
            parameter.copy_(one + noise * (0.1 if parameter.dim() > 1 else 0.3))
    return model


def noise(model: VisionTransformer, count: int = 3, depth: int = 8) -> np.ndarray:
    """Random pictures of the model's size."""
    shape = (count, *model.preprocess.size, model.config.num_channels)
    return np.random.default_rng(0).integers(0, 2**depth, shape).astype(f"uint{depth}")


def outputs_for(model: VisionTransformer) -> tuple[Output, ...]:
    """Everything this model can put out."""
    return ("logits", "token", "mean", "grid") if model.config.class_token else ("logits", "mean", "grid")


@torch.no_grad()
def truth(model: VisionTransformer, pictures: np.ndarray) -> dict[str, Tensor]:
    """What the model itself makes of pictures, in the precision its weights have."""
    full = np.iinfo(pictures.dtype).max
    like = next(model.parameters())
    mean, std = (torch.tensor(part, dtype=like.dtype) for part in (model.preprocess.mean, model.preprocess.std))
    images = (torch.from_numpy(pictures.astype(np.float64)).to(like) / full - mean) / std
    images = images.permute(0, 3, 1, 2)
    tokens, grid = model.features(images), model.config.grid_for(model.preprocess.size)
    patches = tokens[:, model.config.prefix_tokens :]
    found = {"logits": model(images), "mean": patches.mean(dim=1), "grid": patches.unflatten(1, grid)}
    return found | ({"token": tokens[:, 0]} if model.config.class_token else {})
