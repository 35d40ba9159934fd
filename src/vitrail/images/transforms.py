"""The evaluation transform: resize, centre crop, numbers. Integer pixels all the way, bit for bit as the peers do it.

torchvision and timm (on Pillow pictures) and HF (its Pillow processor) agree on the resize and differ in one thing:
where the centre of an odd difference is. `CropRule` says whose rule a model was evaluated with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vitrail.config import Pair, Preprocess
from vitrail.images.decode import DEFAULT, Decoding, Picture, Source, decode
from vitrail.images.reading import BadPicture
from vitrail.images.wide import Array, Depth, scale

if TYPE_CHECKING:
    import torch
    from torch import Tensor

CropRule = Literal["torchvision", "hf"]
FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
    "box": Image.Resampling.BOX,
    "hamming": Image.Resampling.HAMMING,
}
LARGEST_RESIZED = 64_000_000  # pixels before the crop; what does not fit is longer than 1:900 at 256
# Filters as wide as the reduction is; the others sample where a fraction of the picture has no pixel centre, and
# differ by up to 38 levels (docs/guide/images.md).
SCALABLE = ("bilinear", "bicubic", "lanczos")
SCALED_MARGIN = 2  # a JPEG decoded at a fraction stays at least so many times larger than it is resized to


def read(
    source: Source,
    preprocess: Preprocess,
    *,
    depth: Depth = 8,
    crop: CropRule = "torchvision",
    options: Decoding = DEFAULT,
) -> tuple[Array, Picture]:
    """A source to the model's input pixels (height x width x channels), and the picture they were made from."""
    channels = len(preprocess.mean)
    picture = decode(source, channels=channels, depth=depth, options=options, at_least=_enough(preprocess))
    return transform(picture.pixels, preprocess, depth=depth, crop=crop), picture


def transform(
    pixels: Image.Image | Array, preprocess: Preprocess, *, depth: Depth = 8, crop: CropRule = "torchvision"
) -> Array:
    """Decoded pixels to the size the model receives: uint8 (or uint16), height x width x channels."""
    if isinstance(pixels, Image.Image):
        resized = np.asarray(_fit(pixels, preprocess, crop))
        resized = resized[..., None] if resized.ndim == 2 else resized
    else:
        resized = np.stack([_fit_plane(plane, preprocess, crop) for plane in np.moveaxis(pixels, 2, 0)], axis=2)
    return scale(resized, depth)


def affine(preprocess: Preprocess, depth: Depth = 8) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Scale and shift per channel, so that `pixels * scale + shift` is what the model takes."""
    mean, std = (np.asarray(values, np.float64) for values in (preprocess.mean, preprocess.std))
    return (1 / (std * (2**depth - 1))).astype(np.float32), (-mean / std).astype(np.float32)


def normalise(batch: Array, preprocess: Preprocess, device: torch.device | str = "cpu") -> Tensor:
    """Integer pixels, batch x height x width x channels, to the model's input: batch x channels x height x width.

    They travel to the device as integers, a quarter of the bytes.
    """
    import torch

    weight, shift = (
        torch.from_numpy(values).to(device).view(-1, 1, 1)
        for values in affine(preprocess, 8 if batch.dtype == np.uint8 else 16)
    )
    batch = batch if batch.flags.writeable else batch.copy()  # torch has no read-only tensors, and warns
    # Contiguous before the arithmetic: torch would keep channels last and make every later layer stride.
    images = torch.from_numpy(batch).to(device).permute(0, 3, 1, 2)
    images = images.to(torch.float32, memory_format=torch.contiguous_format)
    return torch.addcmul(shift, images, weight, out=images)


def resized_size(width: int, height: int, resize: int | Pair | None) -> tuple[int, int]:
    """Width and height after the resize. The longer side is rounded down, as every peer does."""
    if resize is None:
        return width, height
    if isinstance(resize, tuple):
        return resize[1], resize[0]
    if width <= height:
        return resize, int(resize * height / width)
    return int(resize * width / height), resize


def crop_offset(length: int, wanted: int, rule: CropRule) -> int:
    """Where a centre crop begins; negative where the picture is smaller and is set on black."""
    if rule == "hf":
        return (length - wanted) // 2
    return round((length - wanted) / 2) if length >= wanted else -((wanted - length) // 2)


def _fit(image: Image.Image, preprocess: Preprocess, rule: CropRule) -> Image.Image:
    """One Pillow picture, resized and cropped."""
    width, height = resized_size(*image.size, preprocess.resize)
    rows, cols = preprocess.size
    method = FILTERS[preprocess.interpolation]
    if not preprocess.center_crop and (width, height) != (cols, rows):
        raise _wrong_size(width, height, preprocess)
    left, top = crop_offset(width, cols, rule), crop_offset(height, rows, rule)
    if width * height > LARGEST_RESIZED:
        return _resize_only_the_crop(image, (width, height), (left, top, left + cols, top + rows), method)
    if (width, height) != image.size:
        image = image.resize((width, height), method)
    if image.size == (cols, rows):
        return image
    return image.crop((left, top, left + cols, top + rows))  # Pillow fills with zeros beyond the edges


def _resize_only_the_crop(
    image: Image.Image, size: tuple[int, int], crop: tuple[int, int, int, int], method: Image.Resampling
) -> Image.Image:
    """The same picture within 2 levels, without the gigabytes that 1 x 10,000 pixels grow to on the way."""
    x0, y0, x1, y1 = max(crop[0], 0), max(crop[1], 0), min(crop[2], size[0]), min(crop[3], size[1])
    across, down = image.width / size[0], image.height / size[1]
    box = (x0 * across, y0 * down, min(x1 * across, image.width), min(y1 * down, image.height))
    part = image.resize((x1 - x0, y1 - y0), method, box)
    return part.crop((crop[0] - x0, crop[1] - y0, crop[2] - x0, crop[3] - y0))


def _wrong_size(width: int, height: int, preprocess: Preprocess) -> BadPicture:
    rows, cols = preprocess.size
    return BadPicture(
        "wrong_size",
        f"The picture is {width} x {height} pixels after the resize ({preprocess.resize}).",
        f"The model takes {cols} x {rows}, and its preprocessing does not crop.",
        "Set preprocess.center_crop, or give the resize both sides.",
    )


def _fit_plane(plane: Array, preprocess: Preprocess, crop: CropRule) -> Array:
    """One channel. Beyond 8 bits it is resized in floats, so that nothing is rounded twice."""
    plane = np.ascontiguousarray(plane)
    if plane.dtype == np.uint8:
        return np.asarray(_fit(Image.fromarray(plane), preprocess, crop))
    fitted = np.asarray(_fit(Image.fromarray(plane.astype(np.float32)), preprocess, crop))
    return fitted.clip(0, 65535).round().astype(np.uint16)  # bicubic and Lanczos overshoot


def _enough(preprocess: Preprocess) -> Pair | int | None:
    resize = preprocess.resize if preprocess.interpolation in SCALABLE else None
    if isinstance(resize, tuple):
        return resize[0] * SCALED_MARGIN, resize[1] * SCALED_MARGIN
    return resize * SCALED_MARGIN if resize else None
