"""How much memory a step takes, worked out before it is taken: from the tensors autograd would keep, by shape alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor
from torch.func import functional_call

from vitrail.errors import EnvironmentProblem
from vitrail.model.vit import VisionTransformer, build_empty
from vitrail.train.arithmetic import Arithmetic
from vitrail.train.config import TrainConfig
from vitrail.train.distributed import ALONE, World

SHARE = 0.8  # of what is free may be used
PROCESS = 400 * 2**20  # torch itself, before any tensor
WORKING = 1.3  # beside what is kept for the way back: the operation at hand, and what the allocator holds


def predicted(model: VisionTransformer, learning: Mapping[str, Tensor], config: TrainConfig, dtype: torch.dtype | None,
              pictures: int) -> int:  # fmt: skip
    """Bytes at the peak of a step with so many pictures at a time."""
    return PROCESS + standing(model, learning, config, dtype) + pictures * per_picture(model, config, dtype)


def standing(
    model: VisionTransformer, learning: Mapping[str, Tensor], config: TrainConfig, dtype: torch.dtype | None
) -> int:
    """Bytes that do not depend on the pictures: weights, gradients, moments, averages, rounded weights."""
    everything = sum(p.nbytes for p in model.parameters())
    learnt = sum(p.nbytes for p in learning.values())
    moments = {"adamw": 2, "sgd": 1}[config.optimizer]
    return everything + learnt * (1 + moments + bool(config.ema)) + (everything if dtype else 0)


def per_picture(model: VisionTransformer, config: TrainConfig, dtype: torch.dtype | None) -> int:
    """Bytes that one picture more costs, counted on tensors that have a shape and no memory."""
    if config.mode == "probe":  # a row of features
        return 4 * 4 * features_width(model)
    one, two = (kept_for_backward(model, config, dtype, count) for count in (1, 2))
    pixels = model.config.num_channels * model.config.image_size[0] * model.config.image_size[1]
    return round((two - one) * WORKING) + 3 * 4 * pixels  # read, mixed, and as 32-bit numbers


def features_width(model: VisionTransformer) -> int:
    """Numbers that a classifier is given."""
    config = model.config
    return config.representation_size or config.hidden_size * (2 if config.pooling == "token_and_mean" else 1)


def kept_for_backward(model: VisionTransformer, config: TrainConfig, dtype: torch.dtype | None, count: int) -> int:
    """Bytes of the tensors that the forward pass of `count` pictures keeps for the backward pass."""
    shape = build_empty(model.config).train()
    learns = {name for name, p in model.named_parameters() if p.requires_grad}
    weights = {
        name: p.to(dtype or p.dtype).detach().requires_grad_(name in learns) for name, p in shape.named_parameters()
    }
    own = {weight.untyped_storage()._cdata for weight in weights.values()}
    kept: dict[int, int] = {}

    def count_once(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            kept[storage._cdata] = storage.nbytes()
        alive.append(storage)  # so that no later tensor gets its identity
        return tensor

    alive: list[torch.UntypedStorage] = []
    images = torch.empty(count, model.config.num_channels, *model.config.image_size, device="meta", dtype=dtype)
    with torch.autograd.graph.saved_tensors_hooks(count_once, lambda tensor: tensor):
        functional_call(shape, weights, (images,)).float().log_softmax(1)
    total = sum(kept.values()) + attention_weights(model, dtype, count)
    if config.gradient_checkpointing:  # one block at a time, and what goes in between the blocks
        depth = model.config.num_hidden_layers
        tokens = model.config.prefix_tokens + model.config.grid[0] * model.config.grid[1]
        total = total // depth + count * depth * tokens * model.config.hidden_size * (dtype or torch.float32).itemsize
    return total


def attention_weights(model: VisionTransformer, dtype: torch.dtype | None, count: int) -> int:
    """Attention weights are kept where plain products are used (encoder.attend): in 16 bits on a CPU."""
    config = model.config
    if dtype is None or next(model.parameters()).device.type != "cpu":
        return 0
    tokens = config.prefix_tokens + config.grid[0] * config.grid[1]
    heads = sum(len(config.heads_in(layer)) for layer in range(config.num_hidden_layers))
    return count * heads * tokens * tokens * dtype.itemsize


def portion_that_fits(
    model: VisionTransformer,
    learning: Mapping[str, Tensor],
    config: TrainConfig,
    arithmetic: Arithmetic,
    share: int,
    world: World = ALONE,
) -> int:
    """The pictures at a time: as asked, or as many of a device's `share` of a step as are predicted to fit."""
    if config.micro_batch:
        return min(config.micro_batch, share)
    room = available(arithmetic.device, world) * SHARE - PROCESS
    room -= standing(model, learning, config, arithmetic.dtype)
    each = per_picture(model, config, arithmetic.dtype)
    most = int(room // each)
    if most < 1:
        needed = predicted(model, learning, config, arithmetic.dtype, 1)
        raise EnvironmentProblem(
            f"A step with a single picture would take about {needed / 2**30:.1f} GB.",
            f"{available(arithmetic.device, world) / 2**30:.1f} GB are free.",
            "Use a smaller model or picture, train.gradient_checkpointing=true, or train.mode=lora.",
        )
    portions = -(-share // most)
    return -(-share // portions)


def available(device: torch.device, world: World = ALONE) -> int:
    """Bytes that can still be used there; processes on one machine share its memory, and have a GPU each."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    free = _from_meminfo(Path("/proc/meminfo"))
    limit, used = (_number(Path("/sys/fs/cgroup") / name) for name in ("memory.max", "memory.current"))
    free = min(free, limit - used) if limit is not None and used is not None else free
    return free // world.neighbours


def _from_meminfo(path: Path) -> int:
    try:
        found = re.search(r"MemAvailable:\s+(\d+) kB", path.read_text())
    except OSError:
        found = None
    return int(found[1]) * 1024 if found else 8 * 2**30  # a system that does not say: assume a small one


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
