"""Cover parts of a picture and see what the model makes of it. Cells are the patches of the model's own grid."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.config import Pair, ViTConfig
from vitrail.errors import UsageError
from vitrail.explain.record import evaluating, size_of
from vitrail.explain.target import Asked, Target, target_of
from vitrail.model.vit import VisionTransformer

BATCH = 32  # covered pictures per forward pass
ALONG = 16  # windows along the longer side by default: each of their square costs a forward pass


def occlusion(
    model: VisionTransformer,
    images: Tensor,
    *,
    target: Asked = None,
    window: int | None = None,
    stride: int | None = None,
    fill: float = 0.0,
) -> Tensor:
    """How much confidence is lost when a window of patches is covered (Zeiler and Fergus, 2014), rows x cols each.

    A patch gets the mean over the windows that cover it. `window` and `stride` are in patches; None is as many as
    make 16 windows along the longer side (one on small grids), side by side. `fill` is a normalised value: 0 is the
    mean colour.
    """
    grid = model.config.grid_for(size_of(images))
    window = -(-max(grid) // ALONG) if window is None else window
    windows = window_masks(grid, window, window if stride is None else stride)
    with evaluating(model):
        outputs = model(images)
        wanted = target_of(model, outputs, target)
        before = wanted.confidence(outputs)
    return torch.stack(
        [lost(model, image, wanted.each(torch.tensor([i])), before[i], windows, fill) for i, image in enumerate(images)]
    )


def lost(
    model: VisionTransformer, image: Tensor, target: Target, before: Tensor, windows: Tensor, fill: float
) -> Tensor:
    """One image's map: the confidence lost under each window (windows x rows x cols), shared out to its patches."""
    pixels = to_pixels(windows, model.config, size_of(image[None]))
    drops = before - confidences(
        model, (torch.where(some[:, None], fill, image) for some in torch.split(pixels, BATCH)), target
    )
    weights = windows.to(drops)
    return torch.einsum("w,wrc->rc", drops, weights) / weights.sum(0)


def window_masks(grid: Pair, window: int, stride: int) -> Tensor:
    """Every position of a window of patches, also those that hang over the edge, as masks: windows x rows x cols."""
    if not 1 <= stride <= window:
        raise UsageError(
            f"window is {window} and stride {stride} patches.",
            "1 <= stride <= window, so that no patch is left out.",
            "",
        )
    rows, cols = grid
    masks = [
        _box(grid, top, left, window)
        for top in range(1 - window + (window - 1) % stride, rows, stride)
        for left in range(1 - window + (window - 1) % stride, cols, stride)
    ]
    return torch.stack(masks)


def confidences(model: VisionTransformer, batches: Iterable[Tensor], target: Target) -> Tensor:
    """The target's confidence for pictures that come in batches, all variants of one image."""
    found = []
    with evaluating(model):
        for images in batches:
            same = target.each(torch.zeros(len(images), dtype=torch.long))
            found.append(same.confidence(model(images)))
    return torch.cat(found)


def blurred(images: Tensor, share: float = 1 / 20) -> Tensor:
    """Gaussian blur over a twentieth of the picture: the scene's colours without its things (RISE: 11 of 224)."""
    for axis in (2, 3):
        sigma = max(images.shape[axis] * share, 0.5)
        reach = min(int(3 * sigma), images.shape[axis] - 1)
        offsets = torch.arange(-reach, reach + 1, dtype=images.dtype, device=images.device)
        kernel = torch.exp(-0.5 * (offsets / sigma) ** 2)
        shape = [1, 1, 1, 1]
        shape[axis] = -1
        padding = (0, 0, reach, reach) if axis == 2 else (reach, reach, 0, 0)
        planes = F.pad(images.flatten(0, 1)[:, None], padding, mode="reflect")
        images = F.conv2d(planes, (kernel / kernel.sum()).reshape(shape)).reshape(images.shape)
    return images


def to_pixels(cells: Tensor, config: ViTConfig, size: Pair) -> Tensor:
    """Values per patch (... x rows x cols) as values per pixel. Pixels beyond the last whole patch follow it."""
    rows, cols = (
        (torch.arange(pixels, device=cells.device) // step).clamp_max(count - 1)
        for pixels, step, count in zip(size, config.stride, cells.shape[-2:], strict=True)
    )
    return cells[..., rows[:, None], cols]


def to_cells(pixels: Tensor, config: ViTConfig) -> Tensor:
    """Sums over the pixels of each patch: batch x rows x cols from batch x height x width."""
    grid = config.grid_for((pixels.shape[1], pixels.shape[2]))
    rows, cols = (
        _membership(size, step, count) for size, step, count in zip(pixels.shape[1:], config.stride, grid, strict=True)
    )
    return rows.T.to(pixels) @ pixels @ cols.to(pixels)


def _membership(size: int, step: int, count: int) -> Tensor:
    return F.one_hot((torch.arange(size) // step).clamp_max(count - 1), count)


def _box(grid: Pair, top: int, left: int, window: int) -> Tensor:
    mask = torch.zeros(grid, dtype=torch.bool)
    mask[max(top, 0) : top + window, max(left, 0) : left + window] = True
    return mask
