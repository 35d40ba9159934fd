"""Gradient checkpointing: what a block computes is forgotten on the way there and computed again on the way back.

The bits are the same: random numbers are replayed, and the weights are those of the first time, even where a step
computes with others than the module's own (`functional_call`, which has put its back by then).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

from vitrail.model.encoder import Block
from vitrail.model.vit import VisionTransformer


def recomputed(model: VisionTransformer) -> None:
    """Have every block of this model forget."""
    for block in model.encoder.blocks:
        assert isinstance(block, Block)
        block.forward = partial(forgetting, block)  # type: ignore[method-assign]  # of this object alone


def forgetting(block: Block, x: Tensor, *args: Any) -> Tensor:
    """What the block computes; gradients will have it computed again."""
    if not torch.is_grad_enabled():
        return Block.forward(block, x, *args)
    if isinstance(block, FSDPModule):  # it fetches its own weights, both times
        result: Tensor = checkpoint(partial(Block.forward, block), x, *args, use_reentrant=False)
        return result
    weights: dict[str, Tensor] = {f"block.{name}": tensor for name, tensor in block.named_parameters()}
    again: Tensor = checkpoint(partial(functional_call, Plain(block), weights), (x, *args), use_reentrant=False)
    return again


class Plain(nn.Module):
    """A block that does not forget."""

    def __init__(self, block: Block) -> None:
        super().__init__()
        self.block = block

    def forward(self, x: Tensor, *args: Any) -> Tensor:
        """As the class has it."""
        return Block.forward(self.block, x, *args)
