"""What of a model learns, and how that becomes the model's weights: all of it, the classifier, or low-rank updates.

An adapter is a few tensors and a function from them to weights, so the trained model is an ordinary model again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from vitrail.errors import ConfigError, did_you_mean
from vitrail.model.vit import VisionTransformer
from vitrail.train.config import TrainConfig
from vitrail.train.distributed import whole

HEAD, CLASSIFIER = "head.", "head.classifier."
DOWN, UP = ".lora_down", ".lora_up"
Named = Mapping[str, Tensor]


def learning_tensors(model: VisionTransformer, config: TrainConfig) -> dict[str, Tensor]:
    """The tensors that learn, by name; everything else of the model is frozen."""
    parameters = dict(model.named_parameters())
    chosen: dict[str, Tensor] = parameters  # type: ignore[assignment]  # a Parameter is a Tensor
    if config.mode == "probe":
        chosen = {name: p for name, p in parameters.items() if name.startswith(CLASSIFIER)}
    elif config.mode == "head":
        chosen = {name: p for name, p in parameters.items() if name.startswith(HEAD)}
    elif config.mode == "lora":
        chosen = {name: p for name, p in parameters.items() if name.startswith(HEAD)}
        chosen |= low_rank(parameters, config)
    for name, parameter in parameters.items():
        parameter.requires_grad_(name in chosen)
    return dict(chosen)


def effective(model: VisionTransformer, learning: Named, config: TrainConfig) -> dict[str, Tensor]:
    """The weights the model computes with."""
    weights: dict[str, Tensor] = dict(model.named_parameters())
    for name, tensor in learning.items():
        if name in weights:
            weights[name] = tensor
    if config.mode == "lora":
        scale = config.lora_alpha / config.lora_rank
        for name in [name.removesuffix(UP) for name in learning if name.endswith(UP)]:
            weights[name] = weights[name] + scale * (learning[name + UP] @ learning[name + DOWN])
    return weights


def low_rank(parameters: Mapping[str, Tensor], config: TrainConfig) -> dict[str, Tensor]:
    """A narrow pair of matrices beside every chosen one (LoRA, 2106.09685): their product starts at zero."""
    names = [name for name in parameters if any(name.endswith(f".{layer}.weight") for layer in config.lora_layers)]
    known = {name.split(".", 3)[3].removesuffix(".weight") for name, p in parameters.items()
             if name.startswith("encoder.blocks.") and p.dim() == 2}  # fmt: skip
    unknown = [layer for layer in config.lora_layers if layer not in known]
    if unknown:
        raise ConfigError(f"train.lora_layers names {unknown[0]!r}.", did_you_mean(unknown[0], known), "")
    generator = torch.Generator().manual_seed(config.seed)
    pairs: dict[str, Tensor] = {}
    for name in names:
        rows, cols = parameters[name].shape
        spread = 1 / math.sqrt(cols)
        down = torch.empty(config.lora_rank, cols).uniform_(-spread, spread, generator=generator)
        pairs[name + DOWN] = nn.Parameter(down.to(parameters[name].device))
        pairs[name + UP] = nn.Parameter(torch.zeros(rows, config.lora_rank, device=parameters[name].device))
    return pairs


@torch.no_grad()
def merged(model: VisionTransformer, learning: Named, config: TrainConfig) -> dict[str, Tensor]:
    """A state dict of the model as it stands, in memory of its own."""
    return {name: whole(tensor.detach()).cpu().clone() for name, tensor in effective(model, learning, config).items()}
