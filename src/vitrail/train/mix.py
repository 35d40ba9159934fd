"""Pictures mixed with one another, and their labels with them: mixup (1710.09412) and CutMix (1905.04899).

Each picture of a micro-batch meets the one at the mirrored place. What is drawn depends on (seed, step) alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from vitrail.config import Pair
from vitrail.images.dice import Dice
from vitrail.train.config import TrainConfig


@dataclass(frozen=True)
class Mixing:
    """How much of itself each picture keeps; with a box, where the other one is seen."""

    share: float
    box: tuple[int, int, int, int] | None = None  # top, left, bottom, right


def mixing(config: TrainConfig, step: int, size: Pair) -> Mixing | None:
    """What happens to the pictures of a step, if anything."""
    dice = Dice((config.seed, step))
    if not config.mixes or not dice.chance("mix", config.mix_chance):
        return None
    if config.cutmix and (not config.mixup or dice.chance("mix.kind", 0.5)):
        return cut(dice.beta("mix.share", config.cutmix), size, dice)
    return Mixing(dice.beta("mix.share", config.mixup))


def cut(share: float, size: Pair, dice: Dice) -> Mixing:
    """A box of the remaining area anywhere; where it reaches over the edge, the picture keeps more of itself."""
    rows, cols = size
    height, width = int(rows * math.sqrt(1 - share)), int(cols * math.sqrt(1 - share))
    y, x = dice.below("mix.y", rows), dice.below("mix.x", cols)
    top, bottom = max(y - height // 2, 0), min(y + height // 2, rows)
    left, right = max(x - width // 2, 0), min(x + width // 2, cols)
    return Mixing(1 - (bottom - top) * (right - left) / (rows * cols), (top, left, bottom, right))


def mixed(images: Tensor, targets: Tensor, how: Mixing | None) -> tuple[Tensor, Tensor]:
    """Pictures and targets, each with some of its mirror image in the batch."""
    if how is None:
        return images, targets
    other = images.flip(0)
    if how.box is None:
        images = images * how.share + other * (1 - how.share)
    else:
        top, left, bottom, right = how.box
        images = images.clone()
        images[:, :, top:bottom, left:right] = other[:, :, top:bottom, left:right]
    return images, targets * how.share + targets.flip(0) * (1 - how.share)
