"""A path, bytes, a Pillow picture or an array in; an upright picture with the model's channels out.

Anything that cannot be used is a BadPicture with a reason (reading.py); nothing else is raised for a bad file.
"""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
from PIL import Image, ImageFile

from vitrail.config import Frozen
from vitrail.errors import UsageError
from vitrail.images import colour, pillow, wide
from vitrail.images.reading import PREDICTING, Limits, check_bytes, read_file
from vitrail.images.shards import Member
from vitrail.images.wide import Array, Depth

Source: TypeAlias = str | os.PathLike[str] | Member | bytes | Image.Image | Array
AtLeast: TypeAlias = tuple[int, int] | int | None
DEEP_PNG = {b"\x10\x02": False, b"\x10\x04": True, b"\x10\x06": True}  # 16 bits and a colour type: transparency?


class Decoding(Frozen, frozen=True, kw_only=True):
    """How files become pixels, where people may reasonably want another way."""

    limits: Limits = PREDICTING
    background: colour.Background = "white"  # under transparent pixels
    profiles: bool = True  # convert to sRGB by the ICC profile; False is what torchvision and timm do
    truncated: Literal["error", "load"] = "error"  # load: keep what arrived, and note it
    scaled: bool = False  # decode large JPEGs at 1/2, 1/4 or 1/8; differs slightly (docs/guide/images.md)


DEFAULT = Decoding()


@dataclass(frozen=True, slots=True)
class Picture:
    """Upright pixels: a Pillow picture (RGB or L), or an array, height x width x channels, of uint8 or uint16."""

    pixels: Image.Image | Array
    width: int  # of the whole picture, also when it was decoded at a fraction of its size
    height: int
    format: str
    notes: tuple[str, ...] = ()  # first_frame, scaled, truncated, profile_ignored


def decode(
    source: Source, *, channels: int = 3, depth: Depth = 8, options: Decoding = DEFAULT, at_least: AtLeast = None
) -> Picture:
    """The picture as a model with so many channels takes it; `depth` 16 keeps more than 8 bits where there are more.

    With `options.scaled`, `at_least` (the shorter side, or rows and columns) says how small a JPEG may be decoded.
    """
    with pillow.told_as_bad_picture(), pillow.OWN_LIMIT:
        if isinstance(source, np.ndarray):
            wide.check_shape(source.shape, options.limits)
            return _from_array(source, channels, depth, "array")
        if isinstance(source, Image.Image):
            pillow.check_header(source, b"", options.limits, profiles=options.profiles)
            return _from_image(source, channels, depth, options)
        if isinstance(source, Member):
            return _from_bytes(source.read(options.limits), channels, depth, options, at_least)
        if not isinstance(source, bytes | str | os.PathLike):
            raise UsageError(
                f"A picture was given as {type(source).__name__}.",
                "A path, the bytes of a file, a Pillow picture or an array, height x width x channels.",
            )
        data = source if isinstance(source, bytes) else read_file(source, options.limits)
        return _from_bytes(data, channels, depth, options, at_least)


def _from_bytes(data: bytes, channels: int, depth: Depth, options: Decoding, at_least: AtLeast) -> Picture:
    check_bytes(len(data), options.limits)
    if data.startswith(wide.NPY_MAGIC):
        return _from_array(wide.read_npy(data, options.limits), channels, depth, "NPY")
    if data.startswith(wide.TIFF_MAGIC) and channels not in (1, 3):
        return _from_tiff(data, channels, depth, options)
    image = pillow.open_header(data)
    if image is None:
        if data.startswith(wide.TIFF_MAGIC) and importlib.util.find_spec("tifffile"):
            return _from_tiff(data, channels, depth, options)  # numbers or channels that Pillow has no mode for
        raise pillow.unknown(data)
    if depth == 16 and wide.is_deep_colour_tiff(image):
        return _from_tiff(data, channels, depth, options)
    pillow.check_header(image, data, options.limits, profiles=options.profiles)
    if depth == 16 and image.format == "PNG" and data[24:26] in DEEP_PNG:
        return _from_deep_png(image, data, channels, options)
    return _from_file(image, data, channels, depth, options, at_least)


def _from_file(
    image: ImageFile.ImageFile, data: bytes, channels: int, depth: Depth, options: Decoding, at_least: AtLeast
) -> Picture:
    width, height = image.size
    moves = pillow.moves(image)
    scaled = bool(options.scaled and at_least and pillow.shrink(image, at_least))
    loaded, truncated = pillow.load_pixels(image, data, keep_truncated=options.truncated == "load")
    scaled = scaled and not truncated
    picture = _from_image(loaded, channels, depth, options)
    notes = {"first_frame": moves, "scaled": scaled, "truncated": truncated}
    picture = replace(picture, notes=(*(note for note, holds in notes.items() if holds), *picture.notes))
    if not scaled:
        return picture
    width, height = (height, width) if pillow.orientation(loaded) >= 5 else (width, height)
    return replace(picture, width=width, height=height)


def _from_image(image: Image.Image, channels: int, depth: Depth, options: Decoding) -> Picture:
    turned, kind = pillow.orientation(image), image.format or image.mode
    profile = image.info.get("icc_profile") if options.profiles else None
    if image.mode in wide.WIDE_MODES:
        values, full = wide.grey_values(image)
        values = wide.upright(wide.scale(values, depth, full), turned)
        return _from_array(values, channels, depth, kind, ("profile_ignored",) if profile else ())
    image = image.transpose(pillow.UPRIGHT[turned]) if turned > 1 else image
    if channels not in (1, 3):
        return _from_array(wide.own_channels(image, channels), channels, 8, kind)
    usable = profile if profile and colour.profile_applies(profile, image.mode) else None
    convert = colour.to_rgb if channels == 3 else colour.to_grey
    notes = ("profile_ignored",) if profile and not usable else ()
    return Picture(convert(image, options.background, usable), *image.size, kind, notes)


def _from_array(
    values: Array, channels: int, depth: Depth, kind: str, notes: tuple[str, ...] = (), paper: float | None = None
) -> Picture:
    values = wide.channels_last(values, channels)
    values = np.ascontiguousarray(wide.fit_channels(wide.scale(values, depth), channels, paper))
    height, width = values.shape[:2]
    if depth == 8 and channels in (1, 3):
        return Picture(Image.fromarray(values[..., 0] if channels == 1 else values), width, height, kind, notes)
    return Picture(values, width, height, kind, notes)


def _from_tiff(data: bytes, channels: int, depth: Depth, options: Decoding) -> Picture:
    values, pages = wide.read_tiff(data, options.limits)
    return _from_array(values, channels, depth, "TIFF", ("first_frame",) if pages > 1 else ())


def _from_deep_png(image: Image.Image, data: bytes, channels: int, options: Decoding) -> Picture:
    values = wide.upright(wide.read_png(data), pillow.orientation(image))
    transparent = DEEP_PNG[data[24:26]] and values.shape[2] != channels
    paper = float(options.background == "white") if transparent else None
    notes = ("profile_ignored",) if options.profiles and "icc_profile" in image.info else ()
    return _from_array(values, channels, 16, "PNG", notes, paper)
