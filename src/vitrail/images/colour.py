"""Any 8-bit Pillow picture to sRGB or grey: palettes, transparency, CMYK, colour profiles."""

from __future__ import annotations

import io
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

import numpy as np
from PIL import Image

if TYPE_CHECKING:
    from PIL.ImageCms import ImageCmsTransform

Background = Literal["white", "black"]
TRANSLUCENT = ("LA", "La", "PA", "RGBA", "RGBa")
PROFILE_SPACES = {"L": "GRAY", "RGB": "RGB", "CMYK": "CMYK", "LAB": "LAB"}  # Pillow's mode: the profile's own word
SAME = 2  # levels of 255; two makers' sRGB profiles differ by 1 through rounding, Adobe RGB from sRGB by 60


def to_rgb(image: Image.Image, background: Background, profile: bytes | None) -> Image.Image:
    """The picture in sRGB, laid on the background where it is transparent; `profile` is its ICC profile, if any."""
    translucent = image.mode in TRANSLUCENT or "transparency" in image.info
    if image.mode == "RGB" and not profile and not translucent:
        return image
    colours, alpha = _split_alpha(image) if translucent else (image, None)
    return _lay_on(background, _to_srgb(colours, profile), alpha)


def to_grey(image: Image.Image, background: Background, profile: bytes | None) -> Image.Image:
    """The brightness of the picture (ITU-R 601 luma of its sRGB colours)."""
    if image.mode == "L" and not profile and "transparency" not in image.info:
        return image
    return to_rgb(image, background, profile).convert("L")


def profile_applies(profile: bytes, mode: str) -> bool:
    """Whether a colour profile can be read and describes pictures of this mode."""
    return _conversion(profile, _colour_mode(mode)) is not IMPOSSIBLE


def _split_alpha(image: Image.Image) -> tuple[Image.Image, Image.Image]:
    # Grey stays grey, so that a profile for grey still fits.
    whole = image.convert("LA" if image.mode in ("L", "LA", "La", "1") else "RGBA")
    return whole.convert(_colour_mode(whole.mode)), whole.getchannel("A")


def _lay_on(background: Background, colours: Image.Image, alpha: Image.Image | None) -> Image.Image:
    if alpha is None or alpha.getextrema() == (255, 255):
        return colours
    canvas = Image.new("RGB", colours.size, background)
    canvas.paste(colours, mask=alpha)
    return canvas


def _to_srgb(colours: Image.Image, profile: bytes | None) -> Image.Image:
    mode = _colour_mode(colours.mode)
    if profile or mode == "LAB":
        conversion = _conversion(profile or b"", mode)
        if not isinstance(conversion, str):
            from PIL import ImageCms

            plain = colours if colours.mode == mode else colours.convert(mode)
            converted = ImageCms.applyTransform(plain, conversion)
            assert converted is not None  # only an in-place conversion returns nothing
            return converted
    return colours if colours.mode == "RGB" else colours.convert("RGB")


def _colour_mode(mode: str) -> str:
    """The mode a colour profile would be applied in."""
    return {"1": "L", "LA": "L", "La": "L", "L": "L", "CMYK": "CMYK", "LAB": "LAB"}.get(mode, "RGB")


NOTHING_TO_DO, IMPOSSIBLE = "already sRGB", "not a profile for such a picture"


@lru_cache(maxsize=16)
def _conversion(profile: bytes, mode: str) -> ImageCmsTransform | str:
    """How to turn pictures of this mode and profile into sRGB, or the reason not to."""
    from PIL import ImageCms

    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB"))
    try:
        # Only Lab needs no profile of its own: its numbers are colours already.
        source = ImageCms.ImageCmsProfile(io.BytesIO(profile) if profile else ImageCms.createProfile("LAB"))
        if source.profile.xcolor_space.strip().upper() != PROFILE_SPACES[mode]:
            return IMPOSSIBLE
        conversion = ImageCms.buildTransform(source, srgb, mode, "RGB")
    except (ImageCms.PyCMSError, OSError, ValueError):
        return IMPOSSIBLE
    return NOTHING_TO_DO if _changes_nothing(conversion, mode) else conversion


def _changes_nothing(conversion: ImageCmsTransform, mode: str) -> bool:
    """Tried on a lattice of colours: what a profile is called says little about what it does."""
    from PIL import ImageCms

    if mode not in ("L", "RGB"):
        return False
    levels = np.linspace(0, 255, 16).astype(np.uint8)
    lattice = np.stack(np.meshgrid(levels, levels, levels, indexing="ij"), axis=-1).reshape(64, 64, 3)
    before = Image.fromarray(np.ascontiguousarray(lattice[..., 2])) if mode == "L" else Image.fromarray(lattice)
    after = ImageCms.applyTransform(before, conversion)
    assert after is not None
    difference = np.asarray(before.convert("RGB")).astype(int) - np.asarray(after).astype(int)
    return bool(np.abs(difference).max() <= SAME)
