"""Every initial value, as one table.

A row says: in this flavour, parameters of this role start like this. Sources: google-research/vision_transformer
and big_vision (models/vit.py, flax defaults), transformers 4/5 `_init_weights`, timm 1.0 `init_weights_vit_*`,
torchvision 0.28 VisionTransformer. tests/model/test_init.py compares real tensors with the table.
"""

import fnmatch
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vitrail.config import Initializer, ViTConfig


@dataclass(frozen=True)
class Fans:
    """Inputs and outputs of one linear map; a fused query-key-value weight counts as three maps."""

    inputs: int
    outputs: int


@dataclass(frozen=True)
class Start:
    """How a parameter starts: its kind, its standard deviation or value, and the fill itself."""

    kind: str  # constant | normal | truncated | uniform
    spread: Callable[[Fans, ViTConfig], float]  # the constant, the standard deviation, or half the width

    def fill(self, tensor: Tensor, fans: Fans, config: ViTConfig, generator: torch.Generator | None) -> None:
        spread = self.spread(fans, config)
        if self.kind == "constant":
            tensor.fill_(spread)
        elif self.kind == "normal":
            tensor.normal_(0.0, spread, generator=generator)
        elif self.kind == "uniform":
            tensor.uniform_(-spread, spread, generator=generator)
        else:
            nn.init.trunc_normal_(tensor, 0.0, spread, -2 * spread, 2 * spread, generator=generator)


def constant(value: float) -> Start:
    return Start("constant", lambda fans, config: value)


def normal(std: float) -> Start:
    return Start("normal", lambda fans, config: std)


# flax's lecun_normal draws from a normal cut at two sigma and widened to keep the variance.
CUT = 0.87962566103423978
ZERO, ONE, TINY = constant(0.0), constant(1.0), normal(1e-6)
TRUNCATED = Start("truncated", lambda fans, config: config.initializer_range)
NORMAL_RANGE = Start("normal", lambda fans, config: config.initializer_range)
TRUNCATED_02, NORMAL_02 = Start("truncated", lambda fans, config: 0.02), normal(0.02)
LECUN = Start("truncated", lambda fans, config: math.sqrt(1 / fans.inputs) / CUT)
TRUNCATED_FAN_IN = Start("truncated", lambda fans, config: math.sqrt(1 / fans.inputs))
XAVIER = Start("uniform", lambda fans, config: math.sqrt(6 / (fans.inputs + fans.outputs)))
XAVIER_FUSED = Start("uniform", lambda fans, config: math.sqrt(6 / (fans.inputs + 3 * fans.outputs)))
TORCH_LINEAR = Start("uniform", lambda fans, config: math.sqrt(1 / fans.inputs))
BY_WIDTH = Start("normal", lambda fans, config: config.hidden_size**-0.5)
UNLIKELY = constant(-10.0)  # big_vision's ImageNet-21k head under a sigmoid loss
MINUS_LOG_CLASSES = Start("constant", lambda fans, config: -math.log(max(config.num_classes, 1)))

# First match wins. Norms, LayerScale and what no row names below are the same in every flavour.
COMMON: dict[str, Start] = {
    "stem.resnet.stages.*.norm3.weight": ZERO,  # each residual branch starts silent
    "*norm*.weight": ONE,
    "*norm*.bias": ZERO,
    "*.scale?": Start("constant", lambda fans, config: config.layer_scale or 0.0),
}

FLAVOURS: dict[Initializer, dict[str, Start]] = {
    "google": {
        "tokens.position.table": NORMAL_02,
        "tokens.*_token*": ZERO,
        "head.pool.query": XAVIER,
        "head.classifier*": ZERO,
        "*.mlp.*.bias": TINY,
        "encoder.*.weight": XAVIER,
        "head.pool.*.weight": XAVIER,
        "*.weight": LECUN,
    },
    "big_vision": {
        "tokens.position.table": BY_WIDTH,
        "tokens.*_token*": ZERO,
        "head.pool.query": XAVIER,
        "head.classifier*.weight": ZERO,
        "head.classifier*.bias": UNLIKELY,
        "*.mlp.*.bias": TINY,
        "encoder.*.weight": XAVIER,
        "head.pool.*.weight": XAVIER,
        "*.weight": LECUN,
    },
    "hf": {"tokens.*": TRUNCATED, "head.pool.query": TRUNCATED, "*.weight": TRUNCATED},
    "hf_normal": {"tokens.*": TRUNCATED, "head.pool.query": TRUNCATED, "*.weight": NORMAL_RANGE},
    "timm": {
        "tokens.position.table": TRUNCATED_02,
        "tokens.*_token*": TINY,
        "head.pool.query": TRUNCATED_02,
        "stem.*": TORCH_LINEAR,  # timm leaves the patch projection at torch's own start
        "*.weight": TRUNCATED_02,
    },
    "timm_jax": {
        "tokens.position.table": TRUNCATED_02,
        "tokens.*_token*": TINY,
        "head.pool.query": TRUNCATED_02,
        "stem.*.weight": LECUN,
        "head.classifier*": ZERO,
        "*.mlp.*.bias": TINY,
        "*.weight": XAVIER,
    },
    "timm_jax_nlhb": {
        "tokens.position.table": TRUNCATED_02,
        "tokens.*_token*": TINY,
        "head.pool.query": TRUNCATED_02,
        "stem.*.weight": LECUN,
        "head.classifier*.weight": ZERO,
        "head.classifier*.bias": MINUS_LOG_CLASSES,
        "*.mlp.*.bias": TINY,
        "*.weight": XAVIER,
    },
    "moco": {
        "tokens.position.table": TRUNCATED_02,
        "tokens.*_token*": TINY,
        "head.pool.query": TRUNCATED_02,
        "stem.*": TORCH_LINEAR,
        "*.weight": XAVIER,
    },
    "torchvision": {
        "tokens.position.table": NORMAL_02,
        "tokens.*_token*": ZERO,
        "stem.*.weight": TRUNCATED_FAN_IN,
        "head.representation.weight": TRUNCATED_FAN_IN,
        "head.classifier*": ZERO,
        "*.qkv.weight": XAVIER_FUSED,
        "*.attn.proj.weight": TORCH_LINEAR,
        "*.mlp.*.bias": TINY,
        "*.weight": XAVIER,
        "head.pool.query": NORMAL_02,
    },
}


@torch.no_grad()
def initialize(model: nn.Module, seed: int | None = None) -> None:
    """Fill every parameter by its row of the table; the same seed gives the same weights."""
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    config: ViTConfig = model.config  # type: ignore[assignment]
    parameters = dict(model.named_parameters())
    for name, parameter in parameters.items():
        weight = parameters.get(name.removesuffix("bias") + "weight", parameter)  # a bias may go by its weight's fans
        if parameter.numel():
            row(config.initializer, name).fill(parameter, fans(name, weight), config, generator)


def row(flavour: Initializer, name: str) -> Start:
    """The row of the table for a parameter; biases and anything unnamed start at zero."""
    rows = COMMON | FLAVOURS[flavour]
    return next((start for pattern, start in rows.items() if fnmatch.fnmatchcase(name, pattern)), ZERO)


def fans(name: str, weight: Tensor) -> Fans:
    """Inputs and outputs of the linear map a weight belongs to."""
    if weight.dim() < 2:
        return Fans(weight.numel(), weight.numel())
    if weight.dim() == 4:
        area = weight.shape[2] * weight.shape[3]
        return Fans(weight.shape[1] * area, weight.shape[0] * area)
    maps = 3 if ".qkv." in name else 1
    return Fans(weight.shape[-1], weight.shape[-2] // maps)
