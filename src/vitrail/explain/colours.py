"""Numbers to colours, and colours over pictures. Colour maps are perceptually even: equal steps look equal.

JET is not among them: it draws edges where the numbers have none, and hides some that they have.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Pixels = NDArray[np.uint8]
Palette = Literal["viridis", "cividis", "magma", "inferno", "signed"]

OKLAB_TO_LMS = np.array(
    [[1, 0.3963377774, 0.2158037573], [1, -0.1055613458, -0.0638541728], [1, -0.0894841775, -1.2914855480]]
)
LMS_TO_RGB = np.array(
    [
        [4.0767416621, -3.3077115913, 0.2309699292],
        [-1.2684380046, 2.6097574011, -0.3413193965],
        [-0.0041960863, -0.7034186147, 1.7076147010],
    ]
)  # both from Ottosson, 2020: a space in which distance is what the eye calls difference
BLUE, WHITE, RED = (0.45, -0.03, -0.14), (0.97, 0.0, 0.0), (0.45, 0.14, 0.07)  # lightness, green-red, blue-yellow


@lru_cache(maxsize=8)
def palette(name: Palette) -> Pixels:
    """256 colours, 256 x 3."""
    if name == "signed":
        half = np.linspace(0, 1, 128)[:, None]
        return oklab_to_rgb(np.concatenate([_between(BLUE, WHITE, half), _between(WHITE, RED, half)]))
    from matplotlib import colormaps

    colours: Pixels = np.round(colormaps[name](np.arange(256))[:, :3] * 255).astype(np.uint8)
    return colours


def coloured(values: Array, name: Palette = "magma", low: float | None = None, high: float | None = None) -> Pixels:
    """Values as colours (... x 3), the range from `low` to `high`; by default the values' own.

    The signed palette is symmetric around zero, which is white.
    """
    if low is None or high is None:
        low, high = value_range(values, signed=name == "signed")
    scaled = (np.asarray(values, np.float64) - low) / max(high - low, np.finfo(np.float64).tiny)
    colours: Pixels = palette(name)[np.round(np.clip(scaled, 0, 1) * 255).astype(int)]
    return colours


def value_range(values: Array, signed: bool) -> tuple[float, float]:
    """What the ends of the palette stand for. The top 2% share the last colour: one sink would hide the rest."""
    if signed:
        most = float(np.quantile(np.abs(values), 0.98)) or float(np.abs(values).max()) or 1.0
        return -most, most
    low, high = float(values.min()), float(np.quantile(values, 0.98))
    return low, high if high > low else float(values.max())


def stretched(values: Array, size: tuple[int, int], smooth: bool = False) -> Array:
    """A map over patches as a map over pixels: each patch an even pane, or `smooth` between patch centres."""
    values = np.asarray(values)
    if values.shape[:2] == size:
        return values
    if not smooth:
        rows, cols = (np.arange(n) * count // n for n, count in zip(size, values.shape[:2], strict=True))
        panes: Array = values[rows[:, None], cols]
        return panes
    for axis, n in enumerate(size):
        places = np.clip((np.arange(n) + 0.5) * values.shape[axis] / n - 0.5, 0, values.shape[axis] - 1)
        below = np.minimum(places.astype(int), max(values.shape[axis] - 2, 0))
        share = (places - below).reshape([-1 if a == axis else 1 for a in range(values.ndim)])
        above = np.minimum(below + 1, values.shape[axis] - 1)
        values = values.take(below, axis) * (1 - share) + values.take(above, axis) * share
    return values


def overlaid(picture: Pixels, colours: Pixels, strength: float = 0.6) -> Pixels:
    """Colours over the picture, which keeps its light and dark but gives up its own colours."""
    grey = picture.astype(np.float64) @ [0.299, 0.587, 0.114]
    mixed: Pixels = np.round(strength * colours + (1 - strength) * grey[..., None]).astype(np.uint8)
    return mixed


def oklab_to_rgb(lab: Array) -> Pixels:
    """Oklab to 8-bit sRGB (... x 3)."""
    linear = np.clip((lab @ OKLAB_TO_LMS.T) ** 3 @ LMS_TO_RGB.T, 0, 1)
    encoded = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    levels: Pixels = np.round(encoded * 255).astype(np.uint8)
    return levels


def _between(start: tuple[float, ...], end: tuple[float, ...], share: Array) -> Array:
    mixed: Array = np.asarray(start) * (1 - share) + np.asarray(end) * share
    return mixed
