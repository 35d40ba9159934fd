"""The numbers behind the figures of "An Image is Worth 16x16 Words" (figures 6 and 7), for any checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.config import Pair, ViTConfig
from vitrail.explain.record import Layer, evaluating, precise, record, size_of
from vitrail.model.vit import VisionTransformer

COMPONENTS = 28  # the paper shows as many


@dataclass(frozen=True)
class Filters:
    """Principal components of the first filters: count x rows x cols x channels, each stretched to 0 to 1."""

    components: Tensor
    explained: Tensor  # share of the variance of each
    of: str  # "patch embedding", or "root convolution" in a hybrid


@dataclass(frozen=True)
class Distances:
    """Mean attention distance in pixels, layers x heads (NaN where a head was pruned), and its 95% interval."""

    mean: Tensor
    low: Tensor
    high: Tensor
    images: int


def filters(model: VisionTransformer, count: int = COMPONENTS) -> Filters:
    """What the model looks for in a patch first: PCA over the filters of the patch projection or the root."""
    resnet = model.stem.resnet
    kernel = (model.stem.proj.weight if resnet is None else resnet.root.standardized()).detach().double()
    flat = kernel.flatten(1)
    _, values, components = torch.linalg.svd(flat - flat.mean(0), full_matrices=False)
    signs = components.gather(1, components.abs().argmax(1, keepdim=True)).sign()
    shown = torch.unflatten((components * signs)[:count], 1, kernel.shape[1:]).permute(0, 2, 3, 1)
    low, high = shown.amin((1, 2, 3), keepdim=True), shown.amax((1, 2, 3), keepdim=True)
    explained = values.square() / values.square().sum().clamp_min(1e-30)
    return Filters(
        ((shown - low) / (high - low).clamp_min(1e-12)).float(),
        explained[:count].float(),
        "patch embedding" if resnet is None else "root convolution",
    )


def position_similarity(model: VisionTransformer) -> Tensor | None:
    """Cosine of each position's row with every other's: rows x cols x rows x cols. None without such rows."""
    config = model.config
    if config.position not in ("learned", "sincos"):
        return None
    grid = config.table_grid
    table = model.tokens.positions(grid, model.stem.proj.weight)
    assert table is not None
    patches = F.normalize(precise(table.detach()[0, -grid[0] * grid[1] :]), dim=1)
    return (patches @ patches.T).reshape(*grid, *grid)


def attention_distances(model: VisionTransformer, images: Tensor) -> Tensor:
    """How far each head looks, in pixels: images x layers x heads, by the numbers heads were born with.

    Prefix tokens are dropped and rows brought back to 1; weights times distance, summed over keys, mean over queries.
    """
    config, grid = model.config, model.config.grid_for(size_of(images))
    places = patch_places(config, grid).to(images.device)
    found = torch.full((len(images), config.num_hidden_layers, config.num_attention_heads), torch.nan)
    for number, layer in enumerate(record(model, images).layers):
        if layer.heads:
            found[:, number, list(layer.heads)] = layer_distances(layer, config.prefix_tokens, places).cpu().float()
    return found


def layer_distances(layer: Layer, prefix: int, places: Tensor) -> Tensor:
    """One layer's: images x heads."""
    total = precise(layer.q.new_zeros(layer.q.shape[:2]))
    for queries in layer.slices():
        queries = slice(max(queries.start, prefix), max(queries.stop, prefix))
        if queries.start == queries.stop:
            continue
        weights = layer.weights(queries)[..., prefix:]
        apart = torch.cdist(places[queries.start - prefix : queries.stop - prefix], places).to(weights)
        total += ((weights * apart).sum(-1) / weights.sum(-1)).sum(-1)
    return total / len(places)


def patch_places(config: ViTConfig, grid: Pair) -> Tensor:
    """Where each patch is, in pixels: patches x (row, col)."""
    axes = [torch.arange(count, dtype=torch.float64) * step for count, step in zip(grid, config.stride, strict=True)]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1).flatten(0, 1)


def mean_distances(
    model: VisionTransformer,
    images: Tensor,
    batch_size: int = 8,
    progress: Callable[[int, int], None] | None = None,
) -> Distances:
    """The mean over images with its interval (normal approximation; the paper averages over many images)."""
    found = []
    with evaluating(model):
        for some in torch.split(images, batch_size):
            found.append(attention_distances(model, some))
            if progress:
                progress(len(found) * batch_size, len(images))
    each = torch.cat(found)
    mean = each.mean(0)
    half = 1.96 * each.std(0) / len(each) ** 0.5 if len(each) > 1 else torch.full_like(mean, torch.inf)
    return Distances(mean, mean - half, mean + half, len(each))
