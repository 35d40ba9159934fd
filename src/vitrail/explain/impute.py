"""Fill covered pixels so that nobody sees they were covered: noisy linear imputation (ROAD: Rong et al., 2022).

Every covered pixel becomes the weighted mean of its eight neighbours, covered or not: one sparse linear system per
picture, solved by conjugate gradients. A grey square would tell the model where the important part was.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

DIRECT, DIAGONAL = 1 / 6, 1 / 12  # the paper's weights of the neighbours
NOISE = 0.01  # standard deviation, in normalised values; the paper's too
TOLERANCE, MOST_STEPS = 1e-3, 500


def imputed(images: Tensor, covered: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """`images` (batch x channels x height x width) with the `covered` pixels (batch x height x width) made up."""
    hole = covered[:, None].to(images)
    if not hole.any():
        return images
    filled = torch.where(hole > 0, solved(images * (1 - hole), hole, rough_guess(images, hole)), images)
    noise = torch.randn(images.shape, generator=generator).to(images) * NOISE
    return filled + noise * hole


def solved(known: Tensor, hole: Tensor, guess: Tensor) -> Tensor:
    """The holes' values for which each covered pixel is the weighted mean of its neighbours."""
    share = neighbours(torch.ones_like(hole))  # less than 1 at the edges of the picture

    def residue(inside: Tensor) -> Tensor:
        return (share * inside - neighbours(inside)) * hole

    right = neighbours(known) * hole
    x = guess * hole
    r = right - residue(x)
    step, size = r, dot(r, r)
    enough = TOLERANCE**2 * dot(right, right).clamp_min(torch.finfo(known.dtype).tiny)
    for _ in range(MOST_STEPS):
        if (size <= enough).all():
            break
        moved = residue(step)
        length = size / dot(step, moved).clamp_min(torch.finfo(known.dtype).tiny)
        x, r = x + length * step, r - length * moved
        before, size = size, dot(r, r)
        step = r + size / before.clamp_min(torch.finfo(known.dtype).tiny) * step
    return x


def rough_guess(images: Tensor, hole: Tensor) -> Tensor:
    """Holes filled from ever coarser means of what is known, so that few steps remain for large holes."""
    if min(images.shape[-2:]) == 1 or not hole.any():
        return images
    visible = 1 - hole
    coarse_visible = F.avg_pool2d(visible, 2, ceil_mode=True)
    coarse = F.avg_pool2d(images * visible, 2, ceil_mode=True) / coarse_visible.clamp_min(1e-6)
    filled = rough_guess(coarse, (coarse_visible == 0).to(images))
    return torch.where(hole > 0, F.interpolate(filled, size=images.shape[-2:], mode="bilinear"), images)


def neighbours(x: Tensor) -> Tensor:
    """Per pixel and channel, the weighted sum of its eight neighbours; beyond the edge there are none."""
    rows = F.pad(x, (0, 0, 1, 1))
    beside = F.pad(x, (1, 1, 0, 0))
    vertical = rows[..., :-2, :] + rows[..., 2:, :]
    corners = F.pad(vertical, (1, 1, 0, 0))
    return DIRECT * (vertical + beside[..., :-2] + beside[..., 2:]) + DIAGONAL * (corners[..., :-2] + corners[..., 2:])


def dot(a: Tensor, b: Tensor) -> Tensor:
    """One scalar product per picture and channel."""
    return (a * b).sum((-2, -1), keepdim=True)
