"""Numbers that are not finite: caught in the step they appear in, and traced to the first module that made one.

A step is repeated with the same pictures and the same dropout, this time watching every named intermediate of the
model and, on the way back, every gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from vitrail.errors import ConfigError
from vitrail.model.probe import Probe

WATCHED = (
    *("images", "stem.*", "tokens.*", "norm.out", "head.*", "logits"),
    *(f"blocks.*.{stage}" for stage in ("norm1", "norm2", "attn.q", "attn.k", "attn.v", "attn.context", "attn.out")),
    *("blocks.*.attn.residual", "blocks.*.mlp.*", "blocks.*.out"),
)
# A probe's name to the module that computes it, where the name is not the module's own.
MODULES = {
    "norm.out": "encoder.norm",
    "tokens.positioned": "tokens.position",
    "tokens.positions": "tokens.position",
    "stem.out": "stem.proj",
    "logits": "head.classifier",
    "stem.pool": "stem.resnet.root_norm",
    "head.pooled": "head",
}


NOT_AGAIN = "no module: repeated, the same step was finite"


class NonFinite(Exception):
    """A loss or a gradient is not a number; `where` is the module it came from."""

    def __init__(self, what: str, where: str, step: int) -> None:
        super().__init__(f"{what} of step {step} is not finite; it came from {where}.")
        self.what, self.where, self.step = what, where, step


class Diverged(ConfigError):
    """Training met a number that is not finite, and was told to stop there."""


Backward = Callable[[Probe], Tensor]  # a step's loss, computed again under a probe


def culprit(weights: Mapping[str, Tensor], loss: Backward) -> str:
    """The module where the first number that is not finite appears: in its weights, forwards, or on the way back."""
    for name, weight in weights.items():
        if not torch.isfinite(weight).all():
            return name.rpartition(".")[0] or name
    forwards: list[str] = []
    backwards: list[str] = []
    total = loss(Probe(*WATCHED, keep=watching(forwards, backwards)))
    if forwards:
        return module_of(forwards[0])
    if not torch.isfinite(total):
        return "the loss"
    leaves = {name: weight for name, weight in weights.items() if weight.requires_grad}
    gradients = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
    if backwards:
        return module_of(backwards[0])
    for name, gradient in reversed(list(zip(leaves, gradients, strict=True))):
        if gradient is not None and not torch.isfinite(gradient).all():
            return name.rpartition(".")[0] or name
    return NOT_AGAIN


def watching(forwards: list[str], backwards: list[str]) -> Callable[[str, Tensor], None]:
    """Notes of where something is not finite, in the order of the pass and of the way back."""

    def keep(name: str, tensor: Tensor) -> None:
        if not torch.isfinite(tensor).all():
            forwards.append(name)
        if tensor.requires_grad:
            tensor.register_hook(
                lambda gradient: backwards.append(name) if not torch.isfinite(gradient).all() else None
            )

    return keep


def module_of(name: str) -> str:
    """blocks.3.attn.q to encoder.blocks.3.attn."""
    if name in MODULES:
        return MODULES[name]
    if name.startswith("blocks."):
        parts = name.split(".")
        last = {"q": "qkv", "k": "qkv", "v": "qkv", "out": "proj", "hidden": "fc1", "activated": "act"}
        if parts[2] == "mlp":
            last = last | {"out": "fc2"}
        if len(parts) == 4 and parts[3] in last:
            return "encoder." + ".".join([*parts[:3], last[parts[3]]])
        return "encoder." + ".".join(parts[: 2 if parts[-1] in ("out", "residual") else 3])
    return f"stem.resnet.{name.removeprefix('stem.')}" if name.startswith("stem.") else name


def facts(error: NonFinite) -> dict[str, Any]:
    """The event."""
    return {"what": error.what, "module": error.where, "step": error.step}
