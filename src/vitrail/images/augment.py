"""Training pictures: cropped, flipped, recoloured and painted over, each change a function of (seed, epoch, picture).

Follows Inception's crop, random erasing (1708.04896) and, in policies.py, RandAugment, TrivialAugment and 3-Augment.
tests/train/test_augment_peers.py compares with torchvision and timm, bit for bit where they compute the same thing.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal, TypeAlias

import numpy as np
from PIL import Image

from vitrail.checks import check_fields
from vitrail.config import Frozen, Pair, Preprocess, replace
from vitrail.errors import ConfigError
from vitrail.images.dice import Dice
from vitrail.images.policies import MOST, Colour, Policy, greyscale, jittered, operations, perform
from vitrail.images.transforms import transform
from vitrail.images.wide import Array, Depth

Box: TypeAlias = tuple[int, int, int, int]  # left, top, right, bottom


class Augment(Frozen, frozen=True, kw_only=True):
    """What happens to a training picture, in this order. Zero, or "none", leaves a change out."""

    crop_scale: tuple[float, float] = (0.08, 1.0)  # share of the area a random crop keeps; (1, 1): only the resize
    crop_ratio: tuple[float, float] = (3 / 4, 4 / 3)  # width over height of the crop
    shift: int = 0  # above 0, instead of such a crop: the whole picture, moved by up to so many pixels
    flip: float = 0.5  # chance of a mirror image
    flip_vertical: float = 0.0
    policy: Policy = "none"
    operations: int = 2  # of randaugment, one after the other
    magnitude: float = 9.0  # of randaugment, 0 to 30
    brightness: float = 0.0  # factors are drawn from 1 - x to 1 + x
    contrast: float = 0.0
    saturation: float = 0.0
    hue: float = 0.0  # turned by up to this share of the circle, at most 0.5
    grey: float = 0.0  # chance of losing all colour
    erase: float = 0.0  # chance that a rectangle is painted over
    erase_with: Literal["mean", "noise"] = "mean"

    def __post_init__(self) -> None:
        check_fields(self)
        for field in ("flip", "flip_vertical", "grey", "erase"):
            _check(field, getattr(self, field), 0, 1)
        _check("hue", self.hue, 0, 0.5)
        _check("magnitude", self.magnitude, 0, MOST)
        for field in ("crop_scale", "crop_ratio"):
            low, high = getattr(self, field)
            if not 0 < low <= high or (field == "crop_scale" and high > 1):
                raise ConfigError(f"{field} is {[low, high]}.", "From small to large, above 0.", "")

    @property
    def recolours(self) -> bool:
        """Whether anything in it needs a colour or grey picture of 8 bits."""
        return self.policy != "none" or any((self.brightness, self.contrast, self.saturation, self.hue, self.grey))


def augmented(pixels: Image.Image | Array, preprocess: Preprocess, augment: Augment, dice: Dice) -> Array:
    """A decoded picture to the pixels a model trains on, height x width x channels."""
    crop = shifted if augment.shift else random_resized_crop
    array = crop(pixels, preprocess, augment, dice)
    if dice.chance("flip", augment.flip):
        array = array[:, ::-1]
    if dice.chance("flip.vertical", augment.flip_vertical):
        array = array[::-1]
    if augment.recolours:
        array = recoloured(array, preprocess, augment, dice)
    if dice.chance("erase", augment.erase):
        array = erased(array, preprocess, augment, dice)
    return np.ascontiguousarray(array)


# Crops -------------------------------------------------------------------------------------------------------------


def random_resized_crop(pixels: Image.Image | Array, preprocess: Preprocess, augment: Augment, dice: Dice) -> Array:
    """A random part of the picture, brought to the model's size (Inception's crop)."""
    width, height = pixels.size if isinstance(pixels, Image.Image) else (pixels.shape[1], pixels.shape[0])
    left, top, right, bottom = crop_box((height, width), augment, dice)
    if isinstance(pixels, Image.Image):
        pixels = pixels.crop((left, top, right, bottom))
    else:
        pixels = pixels[top:bottom, left:right]
    return transform(pixels, squashed(preprocess), depth=depth_of(pixels))


@lru_cache(maxsize=8)
def squashed(preprocess: Preprocess) -> Preprocess:
    """To the same size, whatever the shape."""
    return replace(preprocess, resize=preprocess.size, center_crop=False)


def shifted(pixels: Image.Image | Array, preprocess: Preprocess, augment: Augment, dice: Dice) -> Array:
    """The picture as in evaluation, moved a little; what comes in at an edge mirrors what went out."""
    array, most = transform(pixels, preprocess, depth=depth_of(pixels)), augment.shift
    padded = np.pad(array, ((most, most), (most, most), (0, 0)), mode="reflect")
    top, left = dice.below("shift.top", 2 * most + 1), dice.below("shift.left", 2 * most + 1)
    return padded[top : top + array.shape[0], left : left + array.shape[1]]


def depth_of(pixels: Image.Image | Array) -> Depth:
    """The bits of a picture."""
    return 16 if isinstance(pixels, np.ndarray) and pixels.dtype == np.uint16 else 8


def crop_box(size: Pair, augment: Augment, dice: Dice) -> Box:
    """Where to crop: ten tries at an area and a shape that fit, then the largest centred box of an allowed shape."""
    height, width = size
    low, high = augment.crop_ratio
    if augment.crop_scale == (1.0, 1.0):
        return 0, 0, width, height
    for attempt in range(10):
        area = height * width * dice.uniform(f"crop.area.{attempt}", *augment.crop_scale)
        ratio = math.exp(dice.uniform(f"crop.ratio.{attempt}", math.log(low), math.log(high)))
        cols, rows = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < cols <= width and 0 < rows <= height:
            left = dice.below(f"crop.left.{attempt}", width - cols + 1)
            top = dice.below(f"crop.top.{attempt}", height - rows + 1)
            return left, top, left + cols, top + rows
    ratio = min(max(width / height, low), high)
    cols, rows = min(width, max(1, round(height * ratio))), min(height, max(1, round(width / ratio)))
    left, top = (width - cols) // 2, (height - rows) // 2
    return left, top, left + cols, top + rows


# Colours -----------------------------------------------------------------------------------------------------------


def recoloured(pixels: Array, preprocess: Preprocess, augment: Augment, dice: Dice) -> Array:
    """The policy, then the colour jitter, then sometimes no colour at all."""
    image = as_image(pixels)
    for name, strength in operations(augment.policy, augment.operations, augment.magnitude, dice, image.size):
        image = perform(image, name, strength, mean_colour(preprocess))
    amounts = {name: getattr(augment, name) for name in ("brightness", "contrast", "saturation", "hue")}
    image = jittered(image, amounts, dice)
    if dice.chance("grey", augment.grey):
        image = greyscale(image)
    array = np.asarray(image)
    return array if array.ndim == 3 else array[..., None]


def as_image(pixels: Array) -> Image.Image:
    """Pixels as Pillow's picture, where Pillow has a kind for them."""
    if pixels.dtype != np.uint8 or pixels.shape[2] not in (1, 3):
        raise ConfigError(
            f"Colour changes were asked for, but the pictures have {pixels.shape[2]} channels of {pixels.dtype}.",
            "Grey or colour pictures of 8 bits.",
            "Set augment.policy to none and the jitter to 0; crops, flips and erasing work on any picture.",
        )
    return Image.fromarray(np.ascontiguousarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels))


def mean_colour(preprocess: Preprocess) -> Colour:
    """The colour that becomes zero."""
    return tuple(round(mean * 255) for mean in preprocess.mean)


# Erasing -----------------------------------------------------------------------------------------------------------


def erased(pixels: Array, preprocess: Preprocess, augment: Augment, dice: Dice) -> Array:
    """A rectangle painted over, with the mean colour or with noise around it."""
    box = erase_box((pixels.shape[0], pixels.shape[1]), dice)
    if box is None:
        return pixels
    left, top, right, bottom = box
    pixels, full = pixels.copy(), np.iinfo(pixels.dtype).max
    mean, std = (np.asarray(values) for values in (preprocess.mean, preprocess.std))
    if augment.erase_with == "noise":
        mean = mean + std * dice.stream("erase.noise").standard_normal((bottom - top, right - left, len(mean)))
    pixels[top:bottom, left:right] = np.rint(np.clip(mean, 0, 1) * full)
    return pixels


def erase_box(size: Pair, dice: Dice) -> Box | None:
    """Between a fiftieth and a third of the area, of any shape up to 3.3 : 1; ten tries to fit it."""
    rows, cols = size
    for attempt in range(10):
        area = rows * cols * dice.uniform(f"erase.area.{attempt}", 0.02, 1 / 3)
        ratio = math.exp(dice.uniform(f"erase.ratio.{attempt}", math.log(0.3), math.log(1 / 0.3)))
        height, width = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if height < rows and width < cols:
            left = dice.below(f"erase.left.{attempt}", cols - width + 1)
            top = dice.below(f"erase.top.{attempt}", rows - height + 1)
            return left, top, left + width, top + height
    return None


def _check(field: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise ConfigError(f"{field} is {value}.", f"From {low} to {high}.", "")
