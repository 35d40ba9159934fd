"""Tiny models of every kind, every parameter random, so that nothing is equal by chance."""

from functools import cache

import torch

from vitrail.config import ResNetStem, ViTConfig
from vitrail.model.vit import VisionTransformer, create

BASE = {
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "image_size": 8,
    "patch_size": 4,
    "num_classes": 5,
}
GATED = {"mlp": "swiglu", "hidden_act": "silu"}
STEM = ResNetStem(layers=(2, 1), width=32)

CONFIGS = {
    "plain": ViTConfig(**BASE),
    "rectangle": ViTConfig(**BASE | {"image_size": (8, 12), "patch_size": (4, 2)}),
    "pre-logits": ViTConfig(**BASE, representation_size=7),
    "MLP head": ViTConfig(**BASE, representation_size=7, representation_act="relu"),
    "features": ViTConfig(**BASE | {"num_classes": 0}),
    "pooler": ViTConfig(**BASE | {"num_classes": 0}, representation_size=7),
    "distilled": ViTConfig(**BASE, distillation_token=True),
    "unread token": ViTConfig(**BASE, num_register_tokens=1, position_covers="all"),
    "registers": ViTConfig(**BASE, num_register_tokens=4, position_covers="all"),
    "patches only": ViTConfig(**BASE, num_register_tokens=4, position_covers="patches"),
    "mean": ViTConfig(**BASE, class_token=False, pooling="mean"),
    "fc_norm": ViTConfig(**BASE, pooling="mean", final_norm="pooled"),
    "map": ViTConfig(**BASE | {"num_classes": 0}, class_token=False, pooling="map", hidden_act="gelu_tanh"),
    "map classes": ViTConfig(**BASE, class_token=False, pooling="map"),
    "layer scale": ViTConfig(**BASE, layer_scale=0.1),
    "dinov2": ViTConfig(**BASE | {"num_classes": 0, "intermediate_size": 24}, layer_scale=0.1),
    "dinov2 classes": ViTConfig(**BASE | {"intermediate_size": 24}, layer_scale=0.1, pooling="token_and_mean"),
    "dinov2 SwiGLU": ViTConfig(**BASE | {"num_classes": 0, "intermediate_size": 16}, layer_scale=0.1, **GATED),
    "dinov2 registers": ViTConfig(
        **BASE | {"num_classes": 0, "intermediate_size": 24}, layer_scale=0.1, num_register_tokens=4
    ),
    "dinov3": ViTConfig(
        **BASE | {"num_classes": 0}, layer_scale=0.1, num_register_tokens=2, position="rotary", key_bias=False
    ),
    "clip": ViTConfig(
        **BASE | {"num_classes": 0}, patch_bias=False, pre_norm=True, final_norm="pooled", hidden_act="quick_gelu"
    ),
    "qk_norm": ViTConfig(**BASE, qk_norm=True, qkv_bias=False),
    "head_dim": ViTConfig(**BASE, head_dim=6),
    "hybrid": ViTConfig(**BASE | {"image_size": 32, "patch_size": 1}, resnet=STEM),
    "root only": ViTConfig(**BASE | {"image_size": 32}, resnet=ResNetStem(layers=(), width=32)),
    "pruned": ViTConfig(**BASE, kept_heads=((0, 2), (1,))),
    "one channel": ViTConfig(**BASE | {"num_channels": 1}),
}


@cache
def random_state(name: str) -> dict[str, torch.Tensor]:
    """The tensors of one of the models above."""
    return dict(random_model(CONFIGS[name]).state_dict())


def random_model(config: ViTConfig, seed: int = 0) -> VisionTransformer:
    """A model in which no parameter is zero, one or equal to another."""
    model = create(config, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.2, generator=generator)
            if parameter.ndim == 1:
                parameter.add_(0.5)
    return model


def picture(config: ViTConfig, seed: int = 1) -> torch.Tensor:
    """Two normalised pictures of noise."""
    size = (2, config.num_channels, *config.image_size)
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))
