"""Changes of colour and shape, and the policies that choose among them.

RandAugment (1909.13719), TrivialAugment (2103.10158) and 3-Augment (DeiT III, 2204.07118), with the strengths that
torchvision and the papers' own code give to each operation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias

import numpy as np
from PIL import Image, ImageEnhance, ImageFilter, ImageOps

from vitrail.images.dice import Dice

Policy = Literal["none", "randaugment", "trivial", "three"]
Colour: TypeAlias = tuple[int, ...]
Operation = Callable[[Image.Image, float], Image.Image]
Range = Callable[[float, tuple[int, int]], float]  # a magnitude (0 to 1) and width and height to a strength
MOST = 30  # the largest magnitude


def operations(
    policy: Policy, count: int, magnitude: float, dice: Dice, size: tuple[int, int]
) -> list[tuple[str, float]]:
    """What a policy does to one picture: operations and their strengths, in order."""
    if policy == "randaugment":  # several, all of the same magnitude
        names = [RANDAUGMENT[dice.below(f"policy.{turn}", len(RANDAUGMENT))] for turn in range(count)]
        return [(name, _signed(RANGES, name, magnitude / MOST, size, dice, turn)) for turn, name in enumerate(names)]
    if policy == "trivial":  # one, of any magnitude
        name = RANDAUGMENT[dice.below("policy.0", len(RANDAUGMENT))]
        return [(name, _signed(WIDE_RANGES, name, dice.below("policy.magnitude", MOST + 1) / MOST, size, dice, 0))]
    if policy == "three":
        return [
            [("grey", 0.0), ("solarize", 128.0), ("blur", dice.uniform("policy.radius", 0.1, 2.0))][
                dice.below("policy.0", 3)
            ]
        ]
    return []


def perform(image: Image.Image, name: str, strength: float, fill: Colour) -> Image.Image:
    """One operation; `fill` is the colour of what comes in from outside the picture."""
    if name in MOVES:
        return MOVES[name](image, strength, fill if len(image.getbands()) > 1 else fill[0])
    return OPERATIONS[name](image, strength)


def jittered(image: Image.Image, amounts: Mapping[str, float], dice: Dice) -> Image.Image:
    """Brightness, contrast, saturation and hue changed by up to these amounts, in random order."""
    asked = [name for name, amount in amounts.items() if amount]
    for name in sorted(asked, key=lambda name: dice.bits(f"jitter.order.{name}")):
        lowest = -amounts[name] if name == "hue" else max(-amounts[name], -1.0)
        image = OPERATIONS[name](image, dice.uniform(f"jitter.{name}", lowest, amounts[name]))
    return image


def greyscale(image: Image.Image) -> Image.Image:
    """Brightness in every channel."""
    return image.convert("L").convert(image.mode)


def _turned_hue(image: Image.Image, share: float) -> Image.Image:
    """Colours turned by a share of the circle."""
    if image.mode != "RGB":
        return image
    hue, saturation, value = image.convert("HSV").split()
    turned = np.asarray(hue) + np.uint8(int(share * 255) % 256)  # wraps around, as a circle should
    return Image.merge("HSV", (Image.fromarray(turned), saturation, value)).convert("RGB")


def _moved(image: Image.Image, matrix: Sequence[float], fill: Colour | int) -> Image.Image:
    """The picture seen through an affine map from new places to old."""
    return image.transform(image.size, Image.Transform.AFFINE, tuple(matrix), Image.Resampling.NEAREST, fillcolor=fill)


def _signed(
    ranges: Mapping[str, Range], name: str, magnitude: float, size: tuple[int, int], dice: Dice, turn: int
) -> float:
    """The strength of a magnitude; half of the time the other way, for operations that have two."""
    strength = ranges[name](magnitude, size) if name in ranges else 0.0
    return strength * dice.sign(f"policy.{turn}.sign") if name in TWO_WAYS else strength


MOVES: Mapping[str, Callable[[Image.Image, float, Colour | int], Image.Image]] = {
    "shear_x": lambda image, by, fill: _moved(image, (1, by, 0, 0, 1, 0), fill),
    "shear_y": lambda image, by, fill: _moved(image, (1, 0, 0, by, 1, 0), fill),
    "translate_x": lambda image, by, fill: _moved(image, (1, 0, -int(by), 0, 1, 0), fill),
    "translate_y": lambda image, by, fill: _moved(image, (1, 0, 0, 0, 1, -int(by)), fill),
    "rotate": lambda image, by, fill: image.rotate(by, fillcolor=fill),
}
OPERATIONS: Mapping[str, Operation] = {
    "identity": lambda image, by: image,
    "brightness": lambda image, by: ImageEnhance.Brightness(image).enhance(1 + by),
    "saturation": lambda image, by: ImageEnhance.Color(image).enhance(1 + by),
    "contrast": lambda image, by: ImageEnhance.Contrast(image).enhance(1 + by),
    "sharpness": lambda image, by: ImageEnhance.Sharpness(image).enhance(1 + by),
    "hue": _turned_hue,
    "posterize": lambda image, by: ImageOps.posterize(image, int(by)),
    "solarize": lambda image, by: ImageOps.solarize(image, by),  # type: ignore[arg-type]  # compares, any number will do
    "autocontrast": lambda image, by: ImageOps.autocontrast(image),
    "equalize": lambda image, by: ImageOps.equalize(image),
    "grey": lambda image, by: greyscale(image),
    "blur": lambda image, by: image.filter(ImageFilter.GaussianBlur(by)),
}
TWO_WAYS = (*MOVES, "brightness", "saturation", "contrast", "sharpness")
RANDAUGMENT = ("identity", *TWO_WAYS, "posterize", "solarize", "autocontrast", "equalize")

RANGES: Mapping[str, Range] = {
    **dict.fromkeys(("shear_x", "shear_y"), lambda m, size: 0.3 * m),
    "translate_x": lambda m, size: 150 / 331 * size[0] * m,
    "translate_y": lambda m, size: 150 / 331 * size[1] * m,
    "rotate": lambda m, size: 30 * m,
    **dict.fromkeys(("brightness", "saturation", "contrast", "sharpness"), lambda m, size: 0.9 * m),
    "posterize": lambda m, size: 8 - round(4 * m),
    "solarize": lambda m, size: 255 - 255 * m,
}
WIDE_RANGES: Mapping[str, Range] = {
    **dict.fromkeys(("shear_x", "shear_y"), lambda m, size: 0.99 * m),
    **dict.fromkeys(("translate_x", "translate_y"), lambda m, size: 32 * m),
    "rotate": lambda m, size: 135 * m,
    **dict.fromkeys(("brightness", "saturation", "contrast", "sharpness"), lambda m, size: 0.99 * m),
    "posterize": lambda m, size: 8 - round(6 * m),
    "solarize": lambda m, size: 255 - 255 * m,
}
