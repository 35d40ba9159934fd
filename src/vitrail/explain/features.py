"""What the tokens hold: features as colours, what each block would answer, tokens that stand out by their norm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.explain.attention import layer_number, rolled
from vitrail.explain.record import Layer, evaluating, precise, record, size_of
from vitrail.model.probe import SILENT, Probe
from vitrail.model.vit import VisionTransformer

OUTLIER = 6.0  # robust standard deviations above the median norm; 1 in 10^9 normal values goes that far
SINK = 10.0  # times the attention of an even spread


@dataclass(frozen=True)
class Components:
    """Principal components of patch features: colours in 0 to 1 (batch x rows x cols x 3), variance explained."""

    colours: Tensor
    explained: Tensor


def pca(
    model: VisionTransformer, images: Tensor, *, layer: int | None = None, scope: Literal["image", "batch"] = "image"
) -> Components:
    """The first three principal components of the patch features as red, green and blue.

    `layer` None is after the final norm. With scope "batch" all images share one set of colours.
    """
    features = patch_features(model, images, layer)
    groups = [features] if scope == "batch" else torch.split(features, 1)
    found = [principal_colours(group.flatten(0, 2)) for group in groups]
    colours = torch.stack([colour for colour, _ in found]).reshape(*features.shape[:3], 3)
    return Components(colours, torch.stack([explained for _, explained in found]).mean(0))


def patch_features(model: VisionTransformer, images: Tensor, layer: int | None) -> Tensor:
    """Patch tokens after a block, or after the final norm: batch x rows x cols x dim."""
    name = "norm.out" if layer is None else f"blocks.{layer_number(model.config, layer)}.out"
    probe = Probe(name)
    with evaluating(model):
        model(images, probe)
    grid = model.config.grid_for(size_of(images))
    patches = precise(probe[name][:, model.config.prefix_tokens :])
    return torch.unflatten(patches, 1, grid)


def principal_colours(features: Tensor) -> tuple[Tensor, Tensor]:
    """Points x dim to points x 3 in 0 to 1, and the share of variance of each component.

    Each component's sign is fixed by its largest loading being positive, so that colours repeat from run to run.
    Colours span the 1st to the 99th percentile: one artifact does not grey out the rest.
    """
    centred = features.double() - features.double().mean(0)
    values, vectors = torch.linalg.eigh(centred.T @ centred)
    vectors = vectors.flip(1)[:, :3]
    largest = vectors.gather(0, vectors.abs().argmax(0, keepdim=True))
    scores = centred @ (vectors * largest.sign())
    low, high = scores.quantile(torch.tensor([0.01, 0.99], dtype=scores.dtype), dim=0)
    colours = ((scores - low) / (high - low).clamp_min(1e-12)).clamp(0, 1)
    explained = values.flip(0)[:3] / values.sum().clamp_min(1e-12)
    if colours.shape[1] < 3:  # fewer than three channels: the missing colours stay at one half
        colours = F.pad(colours, (0, 3 - colours.shape[1]), value=0.5)
    return colours.float(), explained.float()


@dataclass(frozen=True)
class Lens:
    """After every block, what the head would say: classes and probabilities, blocks x batch x top.

    Without a classifier `classes` is None and `values` (blocks x batch x 1) is the cosine with the final features.
    """

    classes: Tensor | None
    values: Tensor


def lens(model: VisionTransformer, images: Tensor, *, top: int = 5) -> Lens:
    """The logit lens: final norm and head applied to the tokens after every block (nostalgebraist, 2020)."""
    names = [f"blocks.{block}.out" for block in range(model.config.num_hidden_layers)]
    probe = Probe(*names)
    with evaluating(model):
        model(images, probe)
        outputs = [answered(model, probe[name]) for name in names]
        if not model.config.num_classes:
            return Lens(None, torch.stack([F.cosine_similarity(out, outputs[-1], dim=1) for out in outputs])[..., None])
        single = model.config.num_classes == 1
        chances = torch.stack([out.sigmoid() if single else out.softmax(1) for out in outputs])
        values, classes = chances.topk(min(top, chances.shape[-1]), dim=-1)
    return Lens(classes, values)


def answered(model: VisionTransformer, tokens: Tensor) -> Tensor:
    """What the final norm and the head make of tokens."""
    outputs: Tensor = model.head(model.encoder.norm(tokens), SILENT)
    return precise(outputs)


def norms(model: VisionTransformer, images: Tensor, *, layer: int = -1) -> Tensor:
    """The length of every patch token after a block, before the final norm: batch x rows x cols."""
    lengths: Tensor = patch_features(model, images, layer_number(model.config, layer)).norm(dim=-1)
    return lengths


@dataclass(frozen=True)
class Artifacts:
    """Tokens that stand out, per layer.

    `norms` and `received` are layers x batch x tokens (prefix first): the token's length after the block, and the
    attention it receives over that of an even spread. `outliers` and `sinks` mark those beyond OUTLIER and SINK.
    """

    norms: Tensor
    received: Tensor
    outliers: Tensor
    sinks: Tensor
    prefix_tokens: int


def artifacts(model: VisionTransformer, images: Tensor) -> Artifacts:
    """Find patches that a model without registers has taken for scratch paper (Darcet et al., 2024), and sinks."""
    names = [f"blocks.{block}.out" for block in range(model.config.num_hidden_layers)]
    probe = Probe(*names, keep=lambda _, x: precise(x).norm(dim=-1))
    with evaluating(model):
        model(images, probe)
    lengths = torch.stack([probe[name] for name in names])
    received = torch.stack([received_attention(layer) for layer in record(model, images).layers])
    outliers = torch.zeros_like(lengths, dtype=torch.bool)
    prefix = model.config.prefix_tokens
    outliers[..., prefix:] = far_above_median(lengths[..., prefix:])
    return Artifacts(lengths, received, outliers, received > SINK, prefix)


def received_attention(layer: Layer) -> Tensor:
    """What each token receives from all queries and heads, over what an even spread would give: batch x tokens."""
    batch, _, tokens, _ = layer.q.shape
    ones = precise(layer.q.new_ones(batch, 1, tokens))
    return rolled(ones, [layer], lambda layer, queries: layer.weights(queries).mean(1))[:, 0]


def far_above_median(lengths: Tensor) -> Tensor:
    """Whose norm is OUTLIER robust standard deviations (1.4826 x median absolute deviation) above the median."""
    median = lengths.median(-1, keepdim=True).values
    deviation = 1.4826 * (lengths - median).abs().median(-1, keepdim=True).values
    return lengths > median + OUTLIER * deviation.clamp_min(0.05 * median)
