"""Numbers that are not finite: caught in the step they appear in, and traced to the first module that made one.

A step is repeated with the same pictures and the same dropout, this time watching every named intermediate of the
model and, on the way back, the gradients of every module.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

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
    """A loss, a gradient or the state itself is not a number; `where` is the module it came from."""

    def __init__(self, what: str, where: str, step: int) -> None:
        super().__init__(f"{what} of step {step} is not finite; it came from {where}.")
        self.what, self.where, self.step = what, where, step

    def __reduce__(self) -> tuple[type[NonFinite], tuple[str, str, int]]:
        return type(self), (self.what, self.where, self.step)  # as it is told to other processes


class Diverged(ConfigError):
    """Training met a number that is not finite, and was told to stop there."""


Gradients = tuple[Tensor | None, ...]
Backward = Callable[[Probe], Tensor]  # a step's loss, computed again under a probe


def culprit(model: nn.Module, weights: Mapping[str, Tensor], loss: Backward) -> str:
    """The module where the first number that is not finite appears: in its weights, forwards, or on the way back."""
    for name, weight in weights.items():
        if not torch.isfinite(weight).all():
            return name.rpartition(".")[0] or name
    forwards: list[str] = []
    backwards: list[str] = []
    with watching_gradients(model, backwards):
        total = loss(Probe(*WATCHED, keep=lambda name, tensor: forwards.append(name) if is_bad(tensor) else None))
        if forwards:
            return module_of(forwards[0])
        if is_bad(total):
            return "the loss"
        leaves = {name: weight for name, weight in weights.items() if weight.requires_grad}
        gradients = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
    if backwards:
        return backwards[0]
    for name, gradient in reversed(list(zip(leaves, gradients, strict=True))):
        if gradient is not None and is_bad(gradient):
            return name.rpartition(".")[0] or name
    return NOT_AGAIN


@contextmanager
def watching_gradients(model: nn.Module, found: list[str]) -> Iterator[None]:
    """Note, on the way back, each module that is given finite gradients and hands on others."""

    def watch(name: str) -> Callable[[nn.Module, Gradients, Gradients], None]:
        def look(_: nn.Module, handed_on: Gradients, given: Gradients) -> None:
            if any(g is not None and is_bad(g) for g in handed_on) and not any(
                g is not None and is_bad(g) for g in given
            ):
                found.append(name)

        return look

    handles = [module.register_full_backward_hook(watch(name)) for name, module in model.named_modules() if name]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a position table is given no tensor
            yield
    finally:
        for handle in handles:
            handle.remove()


def is_bad(tensor: Tensor) -> bool:
    """Whether any of its numbers is not finite."""
    return not bool(torch.isfinite(tensor).all())


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
