"""Pictures that are more than 8-bit colour or grey: 16 bits, floats, any number of channels, .npy files.

Values are scaled by the full range of their type (65535 for 16 bits, 1.0 for floats), never by what a picture
happens to contain and never clipped. Arrays are height x width x channels.
"""

from __future__ import annotations

import io
import logging
import math
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vitrail.images.extras import extra
from vitrail.images.reading import BadPicture, Limits, check_size

Depth = Literal[8, 16]
Array: TypeAlias = NDArray[Any]
NPY_MAGIC = b"\x93NUMPY"
TIFF_MAGIC = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
TIFF_COMPRESSIONS = (1, 5, 8, 32773, 32946, 50000)  # none, LZW, deflate, PackBits, deflate, Zstandard: nothing exotic
WIDE_MODES = ("I;16", "I;16B", "I;16L", "I;16N", "I", "F")
LUMA = np.array([19595, 38470, 7471], np.uint32)  # ITU-R 601 in 1/65536, the weights Pillow uses
ORIENTATIONS = {  # EXIF: from the stored picture to the upright one
    2: lambda array: array[:, ::-1],
    3: lambda array: array[::-1, ::-1],
    4: lambda array: array[::-1],
    5: lambda array: array.swapaxes(0, 1),
    6: lambda array: np.rot90(array, -1),
    7: lambda array: array[::-1, ::-1].swapaxes(0, 1),
    8: lambda array: np.rot90(array),
}

logging.getLogger("tifffile").addHandler(logging.NullHandler())  # its remarks on a broken file are in our error


def scale(values: Array, depth: Depth, full: float | None = None) -> Array:
    """Values of any number type to 8 or 16 bits; `full` is the value that means white, by default the type's own."""
    target = np.uint8 if depth == 8 else np.uint16
    if values.dtype == target and full is None:
        return values
    full = _full_range(values.dtype) if full is None else full
    _check_values(values, full)
    factor, scaled = (2**depth - 1) / full, np.empty(values.shape, target)
    for start in range(0, len(values), 256):  # rows at a time: a float64 copy of a large picture would be 8 times it
        scaled[start : start + 256] = np.rint(values[start : start + 256] * np.float64(factor))
    return scaled


def fit_channels(values: Array, channels: int, paper: float | None = None) -> Array:
    """As many channels as the model has: the picture's own, or grey repeated, or colours as brightness.

    `paper` is given where the last channel is transparency: what shows through, 0 for black and 1 for white.
    """
    if paper is not None:
        values = _lay_on(paper, values)
    found = values.shape[2]
    if found == channels:
        return values
    if (found, channels) == (1, 3):
        return values.repeat(3, axis=2)
    if (found, channels) == (3, 1):
        return ((values @ LUMA + 0x8000) >> 16).astype(values.dtype)[..., None]
    raise wrong_channels(found, channels)


def wrong_channels(found: int, channels: int) -> BadPicture:
    """The error for a picture that has other channels than the model."""
    return BadPicture(
        "wrong_channels",
        f"The picture has {found} channel{'s' * (found != 1)}.",
        f"The model takes {channels}.",
        "Use pictures with the channels the model was trained on.",
    )


def grey_values(image: Image.Image) -> tuple[Array, float]:
    """The numbers of a one-channel picture deeper than 8 bits, and the number that means white."""
    values = np.asarray(image)[..., None]
    tags = getattr(image, "tag_v2", {})  # only a TIFF has them
    bits, signed = (tags.get(258) or (32,))[0], (tags.get(339) or (1,))[0] == 2
    if image.mode == "F":
        full = 1.0
    elif image.mode == "I" and image.format != "PPM":
        full = 2.0 ** (bits - (signed or not tags)) - 1
        values = values.view(np.uint32) if tags and not signed else values  # Pillow hands them over as signed
    else:  # 12 and 16 bits; Pillow stretches a PGM above 8 bits to 16
        full = 2.0**bits - 1 if tags else 65535.0
    # Photometric 0 means that zero is white; Pillow turns 8-bit pictures round, but not these.
    return (full - values if tags.get(262) == 0 else values), full


def own_channels(image: Image.Image, channels: int) -> Array:
    """The channels an 8-bit picture has by itself: two for grey with alpha, four for RGBA and CMYK."""
    if image.mode == "P":
        image = image.convert("RGBA" if "transparency" in image.info else "RGB")
    if len(image.getbands()) != channels:
        raise wrong_channels(len(image.getbands()), channels)
    return np.asarray(image)


def is_deep_colour_tiff(image: Image.Image) -> bool:
    """Whether a TIFF has several channels of more than 8 bits, which Pillow would cut to 8."""
    bits = getattr(image, "tag_v2", {}).get(258, ())
    return len(bits) > 1 and max(bits) > 8


def read_npy(data: bytes, limits: Limits) -> Array:
    """The array of a .npy file, height x width x channels. Objects are refused: they would run code."""
    file = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(file)
        read_header = {1: np.lib.format.read_array_header_1_0, 2: np.lib.format.read_array_header_2_0}[version[0]]
        shape, fortran_order, dtype = read_header(file)
    except (ValueError, KeyError, SyntaxError, TypeError, RecursionError, MemoryError) as error:
        raise BadPicture("corrupt", f"The .npy header cannot be read ({error}).", "A .npy file of numbers.") from None
    if dtype.hasobject or dtype.kind not in "buif":
        raise BadPicture("corrupt", f"The .npy file holds {dtype}.", "Booleans, integers or floats.")
    check_shape(shape, limits)
    body = data[file.tell() :]
    if len(body) < math.prod(shape) * dtype.itemsize:
        raise BadPicture("truncated", f"The .npy file has {len(body)} bytes of values.", f"Enough for {shape}.")
    order: Literal["F", "C"] = "F" if fortran_order else "C"
    return np.frombuffer(body, dtype, count=math.prod(shape)).reshape(shape, order=order)


def read_tiff(data: bytes, limits: Limits) -> tuple[Array, int]:
    """Every channel of the first page of a TIFF, upright, and the number of pages."""
    tifffile = extra("tifffile", "TIFF files with other than 8-bit grey or colour")
    with tifffile.TiffFile(io.BytesIO(data)) as tiff:
        page = tiff.pages.first
        if not all(isinstance(side, int) for side in page.shape):
            raise BadPicture("corrupt", f"The TIFF gives its size as {page.shape}.", "Two or three numbers.")
        check_shape(page.shape, limits)
        if page.compression not in TIFF_COMPRESSIONS:
            raise BadPicture(
                "unknown_format", f"The TIFF is compressed by {page.compression!s}.", "LZW, deflate or none."
            )
        values = _channels_last(page)
        if page.photometric == 0:  # zero is white
            values = _full_range(values.dtype) - values
        return upright(values, page.tags.valueof(274, 1)), len(tiff.pages)


def read_png(data: bytes) -> Array:
    """A 16-bit PNG with all its bits, which Pillow would cut to 8."""
    values = extra("imagecodecs", "all 16 bits of colour PNG files").png_decode(data)
    return np.asarray(values)


def upright(values: Array, orientation: Any) -> Array:
    """The array turned as its EXIF orientation says; an unknown orientation is taken for upright."""
    turn = ORIENTATIONS.get(orientation) if isinstance(orientation, int) else None
    return turn(values) if turn else values


def check_shape(shape: tuple[int, ...], limits: Limits) -> None:
    """Refuse an array that is not a picture, or above the limits."""
    if len(shape) not in (2, 3) or 0 in shape:
        raise BadPicture(
            "corrupt", f"The array has the shape {shape}.", "Height x width, or height x width x channels."
        )
    check_size(max(shape), 1, limits)
    if math.prod(shape) > 4 * limits.pixels:  # a picture at the limit with four channels
        raise BadPicture(
            "too_many_pixels", f"The array has {math.prod(shape):,} values.", f"At most {4 * limits.pixels:,}."
        )


def channels_last(values: Array, channels: int) -> Array:
    """Height x width x channels, from that, from height x width, or from an unmistakable channels x height x width."""
    if values.ndim == 2:
        return values[..., None]
    if values.shape[2] != channels and values.shape[0] == channels:
        return np.moveaxis(values, 0, 2)
    return values


def _channels_last(page: Any) -> Array:
    values = np.asarray(page.asarray(maxworkers=1))
    if values.ndim == 2:
        return values[..., None]
    return np.moveaxis(values, 0, 2) if page.axes[0] == "S" else values


def _full_range(dtype: np.dtype[Any]) -> float:
    if dtype.kind in "bf":
        return 1.0
    return float(np.iinfo(dtype).max)


def _check_values(values: Array, full: float) -> None:
    low, high = values.min(), values.max()
    slack = 1e-6 if values.dtype.kind == "f" else 0  # a resize or a division may leave a float just outside
    if not (low >= -slack and high <= full + slack):  # written so that not-a-number fails too
        raise BadPicture(
            "value_range",
            f"The values go from {low} to {high}.",
            f"From 0 to {full:g}: integers use the range of their type, floats 0 to 1.",
            "Rescale the file; guessing a range would change its brightness.",
        )


def _lay_on(paper: float, values: Array) -> Array:
    full = np.iinfo(values.dtype).max
    colours, alpha = values[..., :-1].astype(np.float64), values[..., -1:] / full
    return np.rint(colours * alpha + paper * full * (1 - alpha)).astype(values.dtype)
