"""Attention that matters for a class: weights times their gradients, followed back through the layers.

Gradients of attention weights come from the fast pass (record.py). Class-specific, any class; without a classifier,
the direction of the image's own features. `recording` is the pass there and back, where it has been made.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from vitrail.errors import UsageError
from vitrail.explain.attention import plus_identity, rolled, rows_to_one, start_rows
from vitrail.explain.record import Layer, Recording, patch_maps, precise, record
from vitrail.explain.target import Asked
from vitrail.model.vit import VisionTransformer


def relevance(
    model: VisionTransformer, images: Tensor, *, target: Asked = None, recording: Recording | None = None
) -> Tensor:
    """Chefer, Gur and Wolf (ICCV 2021), without LRP: R <- R + mean_h(relu(gradient x weights)) R."""
    return followed(recording or record(model, images, target, gradients=True), relevance_step)


def gradient_rollout(
    model: VisionTransformer, images: Tensor, *, target: Asked = None, recording: Recording | None = None
) -> Tensor:
    """Rollout of relu(mean_h(gradient x weights)) + identity, each row brought to a sum of 1."""
    return followed(recording or record(model, images, target, gradients=True), gradient_rollout_step)


def attention_grad_cam(
    model: VisionTransformer, images: Tensor, *, target: Asked = None, recording: Recording | None = None
) -> Tensor:
    """Grad-CAM with the last layer's heads as channels: relu(mean_h(mean(gradient_h) x weights_h))."""
    recording = recording or record(model, images, target, gradients=True)
    layer = last_with_heads(recording)
    weights, gradients = read_weights(layer, recording.read), read_gradients(layer, recording.read)
    prefix = recording.config.prefix_tokens
    weighed = gradients[:, :, prefix:].mean(-1, keepdim=True) * weights
    return patch_maps(weighed.mean(1).clamp_min(0), recording.config, recording.grid)


def followed(recording: Recording, step: Callable[[Layer, slice], Tensor]) -> Tensor:
    """The head's row of the product over all layers, as maps that sum to 1."""
    last_with_heads(recording)
    rows = start_rows(recording.config, recording.grid, recording.read, None)
    return patch_maps(rolled(rows, recording.layers, step), recording.config, recording.grid)[:, 0]


def relevance_step(layer: Layer, queries: slice) -> Tensor:
    """mean_h(relu(gradient x weights)) + identity: batch x queries x tokens."""
    weighed = layer.weight_gradients(queries).mul_(layer.weights(queries))
    return plus_identity(weighed.clamp_min_(0).mean(1), queries)


def gradient_rollout_step(layer: Layer, queries: slice) -> Tensor:
    """relu(mean_h(gradient x weights)) + identity, each row brought to a sum of 1: batch x queries x tokens."""
    weighed = layer.weight_gradients(queries).mul_(layer.weights(queries))
    return rows_to_one(plus_identity(weighed.mean(1).clamp_min_(0), queries))


def read_weights(layer: Layer, read: Tensor) -> Tensor:
    """The attention of the tokens the head reads: batch x heads x tokens."""
    rows = read.new_zeros(*layer.q.shape[:2], read.shape[1])
    for queries in layer.slices():
        share = read[:, None, None, queries]
        if share.any():
            rows += (share @ layer.weights(queries))[:, :, 0]
    return rows


def read_gradients(layer: Layer, read: Tensor) -> Tensor:
    """The score's gradient with respect to that attention: batch x heads x tokens."""
    assert layer.gradient is not None
    assert layer.v is not None
    return (read[:, None, None] @ precise(layer.gradient) @ precise(layer.v).transpose(-2, -1))[:, :, 0]


def last_with_heads(recording: Recording) -> Layer:
    """The last layer through which patches can still reach the head."""
    for layer in reversed(recording.layers):
        if layer.heads:
            return layer
    raise UsageError(
        "The model has no attention heads left.", "Attention to explain.", "Use occlusion or integrated_gradients."
    )
