"""Files to small pictures inside a page."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Iterator
from functools import partial

import numpy as np
from PIL import Image

from vitrail.images.decode import Decoding, Picture, decode
from vitrail.images.listing import Item
from vitrail.images.loader import in_order
from vitrail.images.reading import BadPicture

SIDE = 176  # pixels of the longer side, drawn at about half of that
PIXEL_ART = 64  # up to this size every pixel counts


def thumbnails(items: Iterable[Item], channels: int, decoding: Decoding, workers: int | None = None) -> Iterator[str]:
    """A data: address for each file, in order; empty for a file that has gone since."""
    quick = Decoding(**{name: getattr(decoding, name) for name in decoding.__struct_fields__} | {"scaled": True})
    yield from in_order(partial(thumbnail, channels=channels, decoding=quick), items, workers=workers)


def thumbnail(item: Item, channels: int, decoding: Decoding) -> str:
    """One file as an address."""
    try:
        image = visible(decode(item, channels=channels, options=decoding, at_least=SIDE))
    except BadPicture:
        return ""
    image.thumbnail((SIDE, SIDE))
    kind = "PNG" if max(image.size) <= PIXEL_ART else "JPEG"
    buffer = io.BytesIO()
    image.save(buffer, kind, quality=80)
    return f"data:image/{kind.lower()};base64,{base64.b64encode(buffer.getvalue()).decode()}"


def visible(picture: Picture) -> Image.Image:
    """A picture as a screen can show it: of many channels the first three, of two the first."""
    if isinstance(picture.pixels, Image.Image):
        return picture.pixels
    values = picture.pixels[..., : 3 if picture.pixels.shape[2] >= 3 else 1]
    values = values if values.dtype == np.uint8 else (values >> 8).astype(np.uint8)
    return Image.fromarray(values if values.shape[2] == 3 else values[..., 0])
