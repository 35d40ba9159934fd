"""One view of one picture, drawn: PNG for looking at, SVG with a pane per patch that tells its value."""

from __future__ import annotations

import base64
import io
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vitrail.explain.colours import Palette, Pixels, coloured, overlaid, palette, stretched, value_range
from vitrail.explain.methods import View

SMALLEST = 448  # pixels of the shorter side of what is drawn; smaller pictures are enlarged by a whole factor


def drawn(view: View, picture: Pixels, smooth: bool = False) -> Pixels:
    """The view over the picture. Each patch is a pane of one colour, as coarse as what was computed."""
    picture = enlarged(picture)
    size = (picture.shape[0], picture.shape[1])
    if view.kind == "colours":
        return np.round(stretched(view.values, size, smooth) * 255).astype(np.uint8)
    low, high = value_range(view.values, signed=view.kind == "signed")
    values = stretched(view.values, size, smooth)
    return overlaid(picture, coloured(values, palette_of(view), low, high))


def palette_of(view: View) -> Palette:
    """Dark to light for amounts, blue over white to red for what can be negative."""
    return "signed" if view.kind == "signed" else "magma"


def enlarged(picture: Pixels) -> Pixels:
    """By a whole number, so that every pixel stays a square."""
    factor = max(1, -(-SMALLEST // min(picture.shape[:2])))
    return picture.repeat(factor, axis=0).repeat(factor, axis=1)


def png(pixels: NDArray[np.uint8]) -> bytes:
    """The bytes of a PNG file."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def jpeg(pixels: NDArray[np.uint8]) -> bytes:
    """The bytes of a JPEG file, for photographs inside a page."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=90, subsampling=0)
    return buffer.getvalue()


def data_uri(data: bytes, kind: str) -> str:
    """Bytes as an address that needs no network."""
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def svg(view: View, picture: Pixels, title: str) -> str:
    """The picture with one rectangle per patch; a pointer over a pane shows its row, column and value."""
    picture = enlarged(picture)
    height, width = picture.shape[:2]
    grey = np.repeat(np.round(picture @ [0.299, 0.587, 0.114]).astype(np.uint8)[..., None], 3, axis=2)
    body = panes(view, height, width) if is_per_patch(view, picture) else raster(view, picture)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height + 28}" font-family="sans-serif">'
        f"<title>{escape(title)}</title>"
        f'<image width="{width}" height="{height}" href="{data_uri(jpeg(grey), "jpeg")}"/>'
        f"{body}{legend(view, width, height)}</svg>"
    )


def panes(view: View, height: int, width: int) -> str:
    """A rectangle per patch."""
    rows, cols = view.values.shape[:2]
    tall, wide = height / rows, width / cols
    if view.kind == "colours":
        colours, opacity = np.round(view.values * 255).astype(np.uint8), 1.0
    else:
        colours, opacity = coloured(view.values, palette_of(view)), 0.6
    marks = [
        f'<rect x="{col * wide:.2f}" y="{row * tall:.2f}" width="{wide:.2f}" height="{tall:.2f}" '
        f'fill="#{bytes(colours[row, col]).hex()}"><title>row {row}, column {col}: '
        f"{spelled(view.values[row, col])}</title></rect>"
        for row in range(rows)
        for col in range(cols)
    ]
    return f'<g opacity="{opacity}" shape-rendering="crispEdges">{"".join(marks)}</g>'


def raster(view: View, picture: Pixels) -> str:
    """A map per pixel, as one picture."""
    height, width = picture.shape[:2]
    return f'<image width="{width}" height="{height}" href="{data_uri(png(drawn(view, picture)), "png")}"/>'


def legend(view: View, width: int, height: int) -> str:
    """A bar of the palette with the numbers of its ends."""
    if view.kind == "colours":
        return ""
    low, high = value_range(view.values, signed=view.kind == "signed")
    bar = data_uri(png(palette(palette_of(view))[None].repeat(8, axis=0)), "png")
    y, left, right = height + 8, width * 0.2, width * 0.8
    return (
        f'<image x="{left}" y="{y}" width="{right - left}" height="12" preserveAspectRatio="none" href="{bar}"/>'
        f'<text x="{left - 6}" y="{y + 11}" font-size="13" text-anchor="end">{low:.3g}</text>'
        f'<text x="{right + 6}" y="{y + 11}" font-size="13">{high:.3g}</text>'
    )


def is_per_patch(view: View, picture: Pixels) -> bool:
    """Whether the view has few enough cells to be rectangles of their own."""
    rows, cols = view.values.shape[:2]
    return bool(rows * cols <= 10_000 and rows < picture.shape[0])


def spelled(value: Any) -> str:
    """One value, or the three of a colour."""
    return " ".join(f"{one:.4g}" for one in np.atleast_1d(value))
