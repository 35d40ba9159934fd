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

    kind: str  # constant | normal | cut | uniform
    spread: Callable[[Fans, ViTConfig], float]  # the constant, the standard deviation, or half the width

    def fill(self, tensor: Tensor, fans: Fans, config: ViTConfig, generator: torch.Generator | None) -> None:
        spread = self.spread(fans, config)
        if self.kind == "constant":
            tensor.fill_(spread)
        elif self.kind == "normal":
            tensor.normal_(0.0, spread, generator=generator)
        elif self.kind == "uniform":
            tensor.uniform_(-spread, spread, generator=generator)
        else:  # a normal cut at two standard deviations
            nn.init.trunc_normal_(tensor, 0.0, spread, -2 * spread, 2 * spread, generator=generator)


def constant(value: float) -> Start:
    return Start("constant", lambda fans, config: value)


def normal(std: float) -> Start:
    return Start("normal", lambda fans, config: std)


# flax's lecun_normal draws from a normal cut at two sigma and widened to keep the variance.
CUT = 0.87962566103423978
ZERO, ONE, TINY, NORMAL_02 = constant(0.0), constant(1.0), normal(1e-6), normal(0.02)
# torch's trunc_normal_(std=0.02), which HF, timm and torchvision call, cuts at -2 and 2: a hundred sigma, so never.
NORMAL_RANGE = Start("normal", lambda fans, config: config.initializer_range)
NORMAL_FAN_IN = Start("normal", lambda fans, config: math.sqrt(1 / fans.inputs))
NORMAL_FAN_OUT = Start("normal", lambda fans, config: math.sqrt(2 / fans.outputs))  # He et al. 2015, timm's ResNetV2
BY_WIDTH = Start("normal", lambda fans, config: config.hidden_size**-0.5)
CUT_BY_WIDTH = Start("cut", lambda fans, config: config.hidden_size**-0.5)
LECUN = Start("cut", lambda fans, config: math.sqrt(1 / fans.inputs) / CUT)
XAVIER = Start("uniform", lambda fans, config: math.sqrt(6 / (fans.inputs + fans.outputs)))
XAVIER_FUSED = Start("uniform", lambda fans, config: math.sqrt(6 / (fans.inputs + 3 * fans.outputs)))  # q, k, v as one
TORCH_LINEAR = Start("uniform", lambda fans, config: math.sqrt(1 / fans.inputs))
UNLIKELY = constant(-10.0)  # big_vision's ImageNet-21k head under a sigmoid loss
MINUS_LOG_CLASSES = Start("constant", lambda fans, config: -math.log(max(config.num_classes, 1)))

# First match wins. Norms, LayerScale and what no row names below are the same in every flavour.
COMMON: dict[str, Start] = {
    "stem.resnet.stages.*.norm3.weight": ZERO,  # each residual branch starts silent
    "*norm*.weight": ONE,
    "*norm*.bias": ZERO,
    "*.scale?": Start("constant", lambda fans, config: config.layer_scale or 0.0),
}

GOOGLE: dict[str, Start] = {
    "tokens.position.table": NORMAL_02,
    "tokens.*_token*": ZERO,
    "head.pool.query": XAVIER,
    "head.classifier*.weight": ZERO,
    "head.classifier*.bias": ZERO,
    "*.mlp.*.bias": TINY,
    "encoder.*.weight": XAVIER,
    "head.pool.*.weight": XAVIER,
    "*.weight": LECUN,
}
TIMM: dict[str, Start] = {
    "tokens.position.table": NORMAL_02,
    "tokens.*_token*": TINY,
    "head.pool.query": CUT_BY_WIDTH,
    "stem.resnet.*.weight": NORMAL_FAN_OUT,
    "stem.*": TORCH_LINEAR,  # timm leaves the patch projection at torch's own start
    "*.weight": NORMAL_02,
}
TIMM_JAX: dict[str, Start] = {
    "tokens.position.table": NORMAL_02,
    "tokens.*_token*": TINY,
    "head.pool.query": CUT_BY_WIDTH,
    "stem.resnet.*.weight": NORMAL_FAN_OUT,
    "stem.*.weight": LECUN,
    "head.classifier*.weight": ZERO,
    "head.classifier*.bias": ZERO,
    "*.mlp.*.bias": TINY,
    "encoder.*.qkv.weight": XAVIER_FUSED,
    "*.weight": XAVIER,
}
TORCHVISION: dict[str, Start] = {
    "tokens.position.table": NORMAL_02,
    "tokens.*_token*": ZERO,
    "head.pool.query": NORMAL_02,
    "stem.*.weight": NORMAL_FAN_IN,
    "head.representation.weight": NORMAL_FAN_IN,
    "head.classifier*": ZERO,
    "*.mlp.*.bias": TINY,
    "*.qkv.weight": XAVIER_FUSED,
    "*.attn.proj.weight": TORCH_LINEAR,
    "*.weight": XAVIER,
}

FLAVOURS: dict[Initializer, dict[str, Start]] = {
    "google": GOOGLE,
    "big_vision": GOOGLE | {"tokens.position.table": BY_WIDTH, "head.classifier*.bias": UNLIKELY},
    "hf": {
        "tokens.register_tokens": ZERO,
        "tokens.*": NORMAL_RANGE,
        "head.pool.query": NORMAL_RANGE,
        "*.weight": NORMAL_RANGE,
    },
    "timm": TIMM,
    "timm_jax": TIMM_JAX,
    "timm_jax_nlhb": TIMM_JAX | {"head.classifier*.bias": MINUS_LOG_CLASSES},
    "moco": TIMM | {"*.weight": XAVIER},
    "torchvision": TORCHVISION,
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
