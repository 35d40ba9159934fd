"""What looks at what: raw attention, the patches that hold most of it, and attention rolled out over all layers.

Every function takes a model and normalised images and gives maps over the patch grid, batch x rows x cols.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from vitrail.config import Pair, ViTConfig
from vitrail.errors import UsageError
from vitrail.explain.record import Layer, Recording, carried, evaluating, patch_maps, precise, record, size_of
from vitrail.model.probe import Probe
from vitrail.model.vit import VisionTransformer

Fuse = Literal["mean", "max", "min"]
FUSE: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": lambda weights: weights.mean(1),
    "max": lambda weights: weights.amax(1),
    "min": lambda weights: weights.amin(1),
}
MANY_ROWS = 64  # beyond this, rows are averaged slice by slice instead of being asked for one by one


def attention(
    model: VisionTransformer,
    images: Tensor,
    *,
    layer: int | None = None,
    head: int | None = None,
    query: Pair | None = None,
    fuse: Literal["mean", "max"] = "mean",
) -> Tensor:
    """Where one layer looks: from a query patch (row, column), or by default from what the head reads.

    `layer` None is the last that has heads; `head` None fuses them. Prefix tokens are dropped and each head's row
    brought back to a sum of 1.
    """
    number = chosen_layer(model.config, layer)
    maps = head_maps(model, images, [number], None if head is None else [head], query)[number]
    return FUSE[fuse](maps)


def mass(
    model: VisionTransformer, images: Tensor, *, layer: int | None = None, head: int | None = None, keep: float = 0.6
) -> Tensor:
    """The fewest patches that hold `keep` of a head's attention (DINO's masks); over heads: the share of masks."""
    number = chosen_layer(model.config, layer)
    maps = head_maps(model, images, [number], None if head is None else [head])[number]
    return heaviest(maps.flatten(2), keep).reshape(maps.shape).float().mean(1)


def rollout(
    model: VisionTransformer,
    images: Tensor,
    *,
    query: Pair | None = None,
    fuse: Fuse = "mean",
    discard: float = 0.0,
    recording: Recording | None = None,
) -> Tensor:
    """Attention followed through all layers, half of every step staying where it is (Abnar and Zuidema, 2020).

    `discard` drops that share of each row's weights, the lowest ones, before a step. `recording` is the pass of these
    images, where it has been made.
    """
    recording = recording or record(model, images)
    rows = start_rows(recording.config, recording.grid, recording.read, query)
    rows = rolled(rows, recording.layers, partial(rollout_step, fuse=fuse, discard=discard))
    return patch_maps(rows, recording.config, recording.grid)[:, 0]


def rolled(rows: Tensor, layers: Sequence[Layer], step: Callable[[Layer, slice], Tensor]) -> Tensor:
    """rows x (A_last ... A_1): the rows wanted of the product, never the product itself."""
    for layer in reversed(layers):
        if layer.heads:  # a layer without heads moves nothing
            rows = carried(rows, layer, step)
    return rows


def rollout_step(layer: Layer, queries: slice, fuse: Fuse, discard: float) -> Tensor:
    """Attention plus identity, each row brought to a sum of 1: batch x queries x tokens."""
    fused = without_lowest(FUSE[fuse](layer.weights(queries)), discard)
    return rows_to_one(plus_identity(fused, queries))


def plus_identity(rows: Tensor, queries: slice) -> Tensor:
    """Some rows of a square matrix, plus those rows of the identity (in place)."""
    rows.diagonal(queries.start, dim1=1, dim2=2).add_(1)
    return rows


def rows_to_one(rows: Tensor) -> Tensor:
    """Each row over its own sum. Without keepdim, as in vit-explain, columns would be divided by row sums."""
    return rows.div_(rows.sum(-1, keepdim=True))


def without_lowest(rows: Tensor, share: float) -> Tensor:
    """The lowest weights of each row set to zero; the largest always stays."""
    if not 0 <= share < 1:
        raise UsageError(f"discard is {share}.", "The share of weights to drop: at least 0, below 1.", "")
    count = int(share * rows.shape[-1])
    return rows.scatter(-1, rows.topk(count, largest=False).indices, 0.0) if count else rows


def heaviest(rows: Tensor, keep: float) -> Tensor:
    """True for the fewest entries of each row that together hold `keep` of its sum."""
    if not 0 < keep <= 1:
        raise UsageError(f"keep is {keep}.", "The share of attention inside the mask: above 0, at most 1.", "")
    ordered, places = rows.sort(-1, descending=True)
    before = ordered.cumsum(-1) - ordered
    inside = before < keep * rows.sum(-1, keepdim=True)
    return torch.zeros_like(inside).scatter(-1, places, inside)


# Rows, heads and layers --------------------------------------------------------------------------------------------


def head_maps(
    model: VisionTransformer,
    images: Tensor,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    query: Pair | None = None,
) -> dict[int, Tensor]:
    """Each layer's maps, batch x heads x rows x cols, for the layers and heads asked for (None: all there are)."""
    config, grid = model.config, model.config.grid_for(size_of(images))
    wanted = [layer_number(config, layer) for layer in (range(config.num_hidden_layers) if layers is None else layers)]
    for layer in wanted:
        check_heads(config, layer, heads)
    queries = query_tokens(config, grid, query)
    if len(queries) > MANY_ROWS:
        rows = averaged_rows(model, images, wanted, heads, queries)
    else:
        rows = probed_rows(model, images, wanted, heads, queries)
    return {layer: patch_maps(row, config, grid) for layer, row in rows.items()}


def probed_rows(
    model: VisionTransformer, images: Tensor, layers: list[int], heads: Sequence[int] | None, queries: list[int]
) -> dict[int, Tensor]:
    """The mean of a few query rows (batch x heads x tokens), computed beside the fast attention."""
    names = {f"blocks.{layer}.attn.weights": layer for layer in layers}
    probe = Probe(*names, queries=queries, heads=heads, keep=lambda _, weights: precise(weights).mean(2))
    with evaluating(model):
        model(images, probe)
    return {names[name]: rows for name, rows in probe.items()}


def averaged_rows(
    model: VisionTransformer, images: Tensor, layers: list[int], heads: Sequence[int] | None, queries: list[int]
) -> dict[int, Tensor]:
    """The mean of many query rows, summed up slice by slice: batch x heads x tokens."""
    recording, found = record(model, images), {}
    share = torch.zeros_like(recording.read[0])
    share[queries] = 1 / len(queries)
    for number in layers:
        layer = recording.layers[number]
        rows = sum(share[some] @ layer.weights(some) for some in layer.slices())
        assert isinstance(rows, Tensor)
        found[number] = rows if heads is None else rows[:, [layer.heads.index(head) for head in heads]]
    return found


def start_rows(config: ViTConfig, grid: Pair, read: Tensor, query: Pair | None) -> Tensor:
    """Where to start from, batch x 1 x tokens: a query patch, or what the head reads."""
    if query is None:
        return read[:, None].clone()
    rows = torch.zeros_like(read)
    rows[:, query_tokens(config, grid, query)] = 1.0
    return rows[:, None]


def query_tokens(config: ViTConfig, grid: Pair, query: Pair | None) -> list[int]:
    """The tokens to look from: a patch; or the head's own token or tokens; or all patches where it reads those."""
    patches = grid[0] * grid[1]
    if query is None:
        if config.pooling == "token":
            return list(range(1 + config.distillation_token))
        return list(range(config.prefix_tokens, config.prefix_tokens + patches))
    row, col = query
    if not (0 <= row < grid[0] and 0 <= col < grid[1]):
        raise UsageError(
            f"Asked for the patch in row {row}, column {col}.",
            f"The grid has rows 0 to {grid[0] - 1} and columns 0 to {grid[1] - 1}.",
            "",
        )
    return [config.prefix_tokens + row * grid[1] + col]


def layer_number(config: ViTConfig, layer: int) -> int:
    """A layer counted from the front, or from the back where negative."""
    if not -config.num_hidden_layers <= layer < config.num_hidden_layers:
        raise UsageError(
            f"Asked for layer {layer}.", f"The model has layers 0 to {config.num_hidden_layers - 1}.", "-1 is the last."
        )
    return layer % config.num_hidden_layers


def chosen_layer(config: ViTConfig, layer: int | None) -> int:
    """The layer asked for, or the last one that has heads left."""
    with_heads = [number for number in range(config.num_hidden_layers) if config.heads_in(number)]
    return (with_heads or [config.num_hidden_layers - 1])[-1] if layer is None else layer_number(config, layer)


def check_heads(config: ViTConfig, layer: int, heads: Sequence[int] | None) -> None:
    """A layer that lost all heads looks nowhere; a head that was pruned has no map."""
    there = config.heads_in(layer)
    gone = [head for head in heads or () if head not in there]
    if not there or gone:
        raise UsageError(
            f"Layer {layer} has no head {gone[0]}." if gone else f"Layer {layer} has no heads left.",
            f"It has {list(there)}." if there else "All of them were pruned.",
            "Choose another layer or head; rollout steps over empty layers.",
        )
