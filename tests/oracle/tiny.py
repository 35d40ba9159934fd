"""Small models with every weight random, so that no term can hide behind a zero or a one."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from vitrail.config import ResNetStem, ViTConfig, build, literal_values
from vitrail.model.vit import VisionTransformer

TINY: dict[str, Any] = {
    "image_size": (12, 8),
    "patch_size": 4,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "num_classes": 5,
}
TINY_STEM: dict[str, Any] = {"layers": (2, 1), "width": 32}


def tiny_config(**fields: Any) -> ViTConfig:
    return build(ViTConfig, TINY | fields)


def tiny_hybrid(**stem: Any) -> ViTConfig:
    """Stride 8, a grid of 5 x 4 from a picture that no stride divides."""
    return tiny_config(image_size=(37, 30), patch_size=1, resnet=build(ResNetStem, TINY_STEM | stem))


def random_model(config: ViTConfig, seed: int = 0) -> VisionTransformer:
    """In evaluation mode. Drawn by NumPy's RandomState, whose stream never changes."""
    model = VisionTransformer(config).eval()
    draw = np.random.RandomState(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            numbers = torch.from_numpy(draw.standard_normal(parameter.shape))
            parameter.copy_(numbers * spread(name, parameter) + ("norm" in name and name.endswith("weight")))
    return model


def spread(name: str, parameter: torch.Tensor) -> float:
    """Wide enough that softmax and activations bend, small enough that nothing saturates."""
    if parameter.dim() < 2 or "token" in name or "table" in name:
        return 0.4
    return 1.5 * max(parameter.shape[1:].numel(), 1) ** -0.5


def random_images(
    config: ViTConfig, batch: int = 2, size: tuple[int, int] | None = None, seed: int = 1
) -> torch.Tensor:
    """Noise, with a nearly even picture at the end: there an epsilon matters."""
    images = np.random.RandomState(seed).standard_normal((batch, config.num_channels, *(size or config.image_size)))
    images[-1] = 0.1 + images[-1] * 1e-3
    return torch.from_numpy(images).float()


@st.composite
def any_config(draw: st.DrawFn, **fixed: Any) -> ViTConfig:
    """Any mix of features, at a size that runs in milliseconds."""
    pick = {name: draw(st.sampled_from(values)) for name, values in CHOICES.items()} | fixed
    if not pick["class_token"]:
        pick |= {"pooling": draw(st.sampled_from(["mean", "map"])), "distillation_token": False}
    if pick["distillation_token"]:
        pick["pooling"] = "token"
    if pick["mlp"] == "swiglu":
        pick["hidden_act"] = "silu"
    if pick["resnet"] is not None:
        pick |= {"image_size": (37, 30), "patch_size": 1, "num_channels": 3}
    if pick["pooling"] == "token_and_mean":
        pick["final_norm"] = "tokens"
    return tiny_config(**pick | fixed)


CHOICES: dict[str, list[Any]] = {
    **{name: list(literal_values(ViTConfig, name)) for name in ("hidden_act", "mlp", "pooling", "final_norm")},
    **{name: list(literal_values(ViTConfig, name)) for name in ("position", "position_covers", "position_resampling")},
    **{name: [False, True] for name in ("class_token", "distillation_token", "pre_norm", "qk_norm")},
    **{name: [True, False] for name in ("qkv_bias", "key_bias", "patch_bias")},
    "num_register_tokens": [0, 1, 3],
    "position_grid": [None, (2, 5)],
    "representation_size": [None, 7],
    "layer_scale": [None, 0.1],
    "num_classes": [5, 1, 0],
    "head_dim": [None, 4],
    "kept_heads": [None, ((0, 2), (1, 2, 3)), ((), (3,)), ((0, 1, 2, 3), ())],
    "image_size": [(12, 8), (8, 16), (4, 4), (11, 14)],
    "ragged_edge": ["crop"],
    "patch_size": [4, (4, 2)],
    "num_channels": [3, 1, 5],
    "layer_norm_eps": [1e-6, 1e-12, 1e-2],
    "resnet": [None, None, build(ResNetStem, TINY_STEM), build(ResNetStem, TINY_STEM | {"padding": "symmetric"})],
}
