"""Which weights learn how fast: groups, optimisers, the schedule, the moving average."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from vitrail.config import ViTConfig
from vitrail.train.config import TrainConfig
from vitrail.train.distributed import local, whole

Named = Mapping[str, Tensor]


def make_optimizer(config: TrainConfig, trainable: Named, depth: int) -> torch.optim.Optimizer:
    """AdamW, or SGD with momentum, over groups of weights that learn alike."""
    groups = parameter_groups(config, trainable, depth)
    fused = all(tensor.device.type in ("cpu", "cuda") for tensor in trainable.values())
    if config.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=config.lr, betas=config.betas, eps=config.eps, fused=fused)
    return torch.optim.SGD(groups, lr=config.lr, momentum=config.momentum, fused=fused)


def parameter_groups(config: TrainConfig, trainable: Named, depth: int) -> list[dict[str, Any]]:
    """Weights by their share of the learning rate and their decay; `names` say which is which."""
    groups: dict[tuple[float, float], dict[str, Any]] = {}
    for name, tensor in trainable.items():
        scale = config.layer_decay ** (depth + 1 - layer_of(name, depth))
        decay = config.weight_decay if decays(name, tensor) else 0.0
        group = groups.setdefault((scale, decay), {"params": [], "names": [], "weight_decay": decay, "lr_scale": scale})
        group["params"].append(tensor)
        group["names"].append(name)
    return list(groups.values())


def layer_of(name: str, depth: int) -> int:
    """How far from the picture a weight is: 0 for stem and tokens, 1 to depth for the blocks, depth + 1 above."""
    block = re.search(r"encoder\.blocks\.(\d+)\.", name)
    if block:
        return int(block[1]) + 1
    return 0 if re.search(r"(^|\.)(stem|tokens)\.", name) else depth + 1


def decays(name: str, tensor: Tensor) -> bool:
    """Matrices and kernels do; biases, norms, LayerScale, tokens, positions and pooling queries do not."""
    return tensor.dim() > 1 and not re.search(r"(^|\.)tokens\.|\.query$", name)


def learning_rate(config: TrainConfig, step: int, steps: int) -> float:
    """The rate of a step (counted from 0) of so many: linear warm-up, then the schedule down to min_lr."""
    warmup = warmup_steps(config, steps)
    if step < warmup:
        return config.lr * (step + 1) / (warmup + 1)
    done = (step - warmup) / max(steps - warmup, 1)
    falls = {"cosine": (1 + math.cos(math.pi * done)) / 2, "linear": 1 - done, "constant": 1.0}
    return config.lr * (config.min_lr + (1 - config.min_lr) * falls[config.schedule])


def warmup_steps(config: TrainConfig, steps: int) -> int:
    """Steps until the full rate."""
    return round(config.warmup * steps) if config.warmup < 1 else min(int(config.warmup), steps)


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """The rate of the next step, for each group its share."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group["lr_scale"]


def gradient_norm(parameters: Iterable[Tensor]) -> Tensor:
    """The length of all gradients together."""
    return whole(nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None]))


@torch.no_grad()
def scale_gradients(parameters: Iterable[Tensor], factor: float) -> None:
    """All gradients times a number."""
    gradients = [local(p.grad) for p in parameters if p.grad is not None]
    if gradients and factor != 1.0:
        torch._foreach_mul_(gradients, factor)


@torch.no_grad()
def update_average(average: Named, current: Named, decay: float, step: int) -> None:
    """Move the average a little towards the weights; a young average moves faster, as it has little to keep."""
    decay = min(decay, (1 + step) / (10 + step))
    torch._foreach_lerp_([local(a) for a in average.values()], [local(current[name]) for name in average], 1 - decay)


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Everything the optimiser remembers, by what it is and whose it is: `exp_avg/encoder.norm.weight`."""
    return {
        f"{kind}/{name}": tensor
        for group in optimizer.param_groups
        for name, parameter in zip(group["names"], group["params"], strict=True)
        for kind, tensor in optimizer.state.get(parameter, {}).items()
        if isinstance(tensor, Tensor)
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Named) -> None:
    """What `optimizer_tensors` gave, put back."""
    places = {
        name: parameter
        for group in optimizer.param_groups
        for name, parameter in zip(group["names"], group["params"], strict=True)
    }
    for key, tensor in tensors.items():
        kind, _, name = key.partition("/")
        optimizer.state[places[name]][kind] = tensor.to(places[name].device, copy=True)


def depth_of(config: ViTConfig) -> int:
    """Blocks between the picture and the head."""
    return config.num_hidden_layers
