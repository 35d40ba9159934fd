"""Gradients of a class score: Grad-CAM and LayerCAM over patches, integrated gradients over pixels.

The layer is chosen by the model. With a class token the patches of the last block reach nothing: their gradient is
zero, and a map made of it is empty. What still reaches the head is the last attention's input.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor

from vitrail.config import ViTConfig
from vitrail.errors import UsageError
from vitrail.explain.attention import layer_number
from vitrail.explain.perturb import blurred
from vitrail.explain.record import evaluating, precise, size_of
from vitrail.explain.target import Asked, Target, target_of
from vitrail.model.probe import SILENT, Probe
from vitrail.model.vit import VisionTransformer


def grad_cam(model: VisionTransformer, images: Tensor, *, target: Asked = None, layer: int | None = None) -> Tensor:
    """relu(sum over channels of mean gradient x activation), batch x rows x cols (Selvaraju et al., 2017)."""
    activations, gradients = patch_gradients(model, images, target, layer)
    return (activations * gradients.mean((1, 2), keepdim=True)).sum(-1).clamp_min(0)


def layer_cam(model: VisionTransformer, images: Tensor, *, target: Asked = None, layer: int | None = None) -> Tensor:
    """relu(sum over channels of relu(gradient) x activation), each patch by its own gradient (Jiang et al., 2021)."""
    activations, gradients = patch_gradients(model, images, target, layer)
    return (activations * gradients.clamp_min(0)).sum(-1).clamp_min(0)


def patch_gradients(model: VisionTransformer, images: Tensor, asked: Asked, layer: int | None) -> tuple[Tensor, Tensor]:
    """Activations and the score's gradient at the chosen place, each batch x rows x cols x dim."""
    name = cam_place(model.config, layer)
    probe = Probe(name)
    with evaluating(model, gradients=True):
        outputs = model(images.detach().clone().requires_grad_(), probe)
        score = target_of(model, outputs, asked).score(outputs).sum()
        (gradient,) = torch.autograd.grad(score, [probe[name]])
    grid, prefix = model.config.grid_for(size_of(images)), model.config.prefix_tokens
    activations, gradients = (
        torch.unflatten(precise(part.detach()[:, prefix:]), 1, grid) for part in (probe[name], gradient)
    )
    return activations, gradients


def cam_place(config: ViTConfig, layer: int | None = None) -> str:
    """The probe's name for the last place where patches still decide something (or that place in `layer`)."""
    with_heads = [number for number in range(config.num_hidden_layers) if config.heads_in(number)]
    if config.pooling != "token":  # the head reads every patch
        return "norm.out" if layer is None else f"blocks.{layer_number(config, layer)}.out"
    if not with_heads:
        raise UsageError("The model has no attention heads left.", "Some path from patches to the class token.", "")
    number = with_heads[-1] if layer is None else layer_number(config, layer)
    if number > with_heads[-1]:
        raise UsageError(
            f"Gradients of the patches are zero in layer {number}.",
            f"The last layer whose attention the head reads is {with_heads[-1]}.",
            "Leave the layer out: the model chooses it.",
        )
    return f"blocks.{number}.norm1"


def integrated_gradients(
    model: VisionTransformer,
    images: Tensor,
    *,
    target: Asked = None,
    steps: int = 32,
    baseline: float | Literal["blur"] | None = None,
) -> Tensor:
    """Gradients along the way from a baseline picture, per pixel, signed: batch x height x width.

    Each image's map sums to its score minus the baseline's (Sundararajan et al., 2017). A number is an even picture of
    that normalised value. None is 0, the mean colour, for plain models and the blurred picture for hybrids: their
    group norm answers to a faint picture as to a strong one, so the way from an even one is a jump no step sees.
    """
    if steps < 1:
        raise UsageError(f"steps is {steps}.", "1 or more; 32 is usually close.", "")
    with evaluating(model):
        wanted = target_of(model, model(images), target)
    start = start_picture(model.config, images, baseline)
    difference, total = images - start, torch.zeros_like(images)
    for way in midpoints(steps):
        total += input_gradient(model, start + way * difference, wanted)
    return (total * difference / steps).sum(1)


def start_picture(config: ViTConfig, images: Tensor, baseline: float | Literal["blur"] | None) -> Tensor:
    """Where the way to the picture begins."""
    if baseline == "blur" or (baseline is None and config.resnet):
        return blurred(images)
    return torch.full_like(images, baseline or 0.0)


def input_gradient(model: VisionTransformer, images: Tensor, target: Target) -> Tensor:
    """The score's gradient with respect to the pixels."""
    with evaluating(model, gradients=True):
        images = images.detach().clone().requires_grad_()
        return torch.autograd.grad(target.score(model(images, SILENT)).sum(), [images])[0]


def midpoints(steps: int) -> Iterator[float]:
    """The middle of each of `steps` equal parts of 0 to 1."""
    return ((step + 0.5) / steps for step in range(steps))
