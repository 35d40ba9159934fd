"""Opening and loading by Pillow, within limits: header first, one kind of error, no setting of the process changed.

Only the formats listed here are ever tried, whatever a file is called.
"""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

# Imported by name, so that Pillow does not load all of its forty readers to look for these.
from PIL import (
    AvifImagePlugin,  # noqa: F401
    BmpImagePlugin,  # noqa: F401
    GifImagePlugin,  # noqa: F401
    Image,
    ImageFile,
    JpegImagePlugin,  # noqa: F401
    PngImagePlugin,  # noqa: F401
    PpmImagePlugin,  # noqa: F401
    TiffImagePlugin,  # noqa: F401
    UnidentifiedImageError,
    WebPImagePlugin,  # noqa: F401
)

from vitrail.errors import VitrailError
from vitrail.images.reading import BadPicture, Limits, check_size

# No EPS, PSD, PDF, FITS or JPEG 2000: readers with a history of holes, for files that are not photographs.
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "AVIF")
JPEG = ("JPEG", "MPO")
MOVING = ("GIF", "WEBP", "PNG", "TIFF", "AVIF")  # not MPO: a phone's second frame is a gain map or a preview
MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")  # of a JPEG; the others stand inside compressed pixels
ORIENTATION = 0x0112  # the EXIF tag
UPRIGHT = {  # EXIF: from the stored picture to the upright one
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
PILLOW_SAYS = {  # words of its messages: our reason
    "truncated": "truncated",
    "Truncated": "truncated",
    "Decompressed data too large": "metadata_too_large",
    "Too much memory used in text": "metadata_too_large",
}


def open_header(data: bytes) -> ImageFile.ImageFile | None:
    """The picture before its pixels; None if Pillow does not know it."""
    try:
        return Image.open(io.BytesIO(data), formats=FORMATS)
    except UnidentifiedImageError:
        return None


def unknown(data: bytes) -> BadPicture:
    """The error for bytes that Pillow does not know: another kind of file, or a broken picture."""
    like = next((name for name in FORMATS if _begins_like(name, data)), None)
    return BadPicture(
        "corrupt" if like else "unknown_format",
        f"The file is not a readable picture (it begins with {data[:8]!r}{f', like {like}' if like else ''}).",
        f"One of {', '.join(FORMATS)}, or .npy.",
        "Convert the picture, or leave the file out.",
    )


def check_header(image: Image.Image, data: bytes, limits: Limits, *, profiles: bool) -> None:
    """Refuse what is above the limits, before a pixel is decoded."""
    check_size(*image.size, limits)
    profile = len(image.info.get("icc_profile") or b"")
    if profiles and profile > limits.icc_bytes:
        raise BadPicture(
            "metadata_too_large",
            f"The colour profile has {profile:,} bytes.",
            f"At most {limits.icc_bytes:,}.",
            "Raise the limit (icc_bytes), or decode with profiles=False.",
        )
    # Counting the two bytes is quick and never too low; only a suspicious file is walked marker by marker.
    if image.format in JPEG and data.count(b"\xff\xda") > limits.scans and count_scans(data) > limits.scans:
        raise BadPicture(
            "too_many_scans",
            f"The JPEG has {count_scans(data):,} scans.",
            f"At most {limits.scans}; encoders write about 10.",
            "Save the picture again with another program.",
        )


def count_scans(data: bytes) -> int:
    """How many times a JPEG goes over its pixels, up to its first end marker."""
    scans, position = 0, 2
    while found := MARKER.search(data, position):
        marker, position = data[found.start() + 1], found.end()
        if marker == 0xD9:
            break
        scans += marker == 0xDA
        position += int.from_bytes(data[position : position + 2], "big")
    return scans


def load_pixels(image: ImageFile.ImageFile, data: bytes, *, keep_truncated: bool) -> tuple[Image.Image, bool]:
    """The picture with its pixels, and whether some of them are missing."""
    try:
        if image.format in JPEG and _is_too_short(image, data):
            raise OSError("it is truncated: too few bytes for its size")
        image.load()
    except Exception:
        if not keep_truncated:
            raise
    else:
        return image, False
    # Pillow's own switch for this belongs to the whole process, and other threads may want errors.
    if image.format in JPEG:
        # With an end marker libjpeg finishes what it has; a progressive file becomes coarse but complete.
        image = Image.open(io.BytesIO(data + b"\xff\xd9"), formats=FORMATS)
    else:
        image.tile = []  # nothing is left to load: what was decoded so far is the picture
    image.load()
    return image, True


def shrink(image: ImageFile.ImageFile, at_least: tuple[int, int] | int) -> bool:
    """Let libjpeg decode at a fraction that divides both sides, so that no edge pixel is a partial one.

    `at_least` is the shorter side, or rows and columns of the upright picture. False: it is decoded whole.
    """
    if image.format not in JPEG:
        return False
    rows, cols = (at_least, at_least) if isinstance(at_least, int) else at_least
    if orientation(image) >= 5:
        rows, cols = cols, rows
    width, height = image.size
    for factor in (8, 4, 2):
        if width % factor == height % factor == 0 and width >= cols * factor and height >= rows * factor:
            image.draft(None, (width // factor, height // factor))
            return True
    return False


def orientation(image: Image.Image) -> int:
    """The EXIF orientation, 1 to 8; 1 where there is none or none that makes sense."""
    try:
        number = image.getexif().get(ORIENTATION, 1)
    except Exception:  # a broken EXIF block is no reason to lose the picture
        return 1
    return cast(int, number) if number in UPRIGHT else 1


def moves(image: Image.Image) -> bool:
    """Whether there are more frames than the one that is used."""
    if image.format not in MOVING:
        return False
    try:
        return bool(getattr(image, "is_animated", False))
    except Exception:  # the second frame is broken; the first need not be
        return True


@contextmanager
def told_as_bad_picture() -> Iterator[None]:
    """Pillow raises nearly every kind of exception for a broken file; people get one kind, with a reason."""
    try:
        yield
    except VitrailError:
        raise
    except MemoryError as error:
        raise BadPicture("out_of_memory", "There is not enough memory to decode the picture.") from error
    except Exception as error:
        if _is_a_bug_of_ours(error):
            raise
        reason = next((reason for words, reason in PILLOW_SAYS.items() if words in str(error)), "corrupt")
        raise BadPicture(
            reason,
            f"The picture cannot be decoded ({str(error) or type(error).__name__}).",
            "A complete, undamaged picture.",
            "Copy it again from its source, or leave it out.",
        ) from error


class OwnLimit:
    """Pillow's process-wide limit on pixels, lifted while at least one picture is decoded under ours.

    Ours is checked per call and differs between a server and a folder; Pillow's warns at half of its own.
    """

    def __init__(self) -> None:
        self.lock, self.users, self.pillows = threading.Lock(), 0, Image.MAX_IMAGE_PIXELS

    def __enter__(self) -> None:
        with self.lock:
            if self.users == 0:
                self.pillows, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
            self.users += 1

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.users -= 1
            if self.users == 0:
                Image.MAX_IMAGE_PIXELS = self.pillows


OWN_LIMIT = OwnLimit()


def _is_too_short(image: Image.Image, data: bytes) -> bool:
    """Whether a JPEG has less than one bit per block of 8 x 8 pixels. libjpeg would paint the rest grey, unasked."""
    return image.width * image.height > 64 * 8 * len(data)


def _is_a_bug_of_ours(error: Exception) -> bool:
    """Whether code of vitrail itself stumbled; readers of files are forgiven any exception, we are not."""
    at = error.__traceback__
    while at and at.tb_next:
        at = at.tb_next
    ours = at is not None and str(at.tb_frame.f_globals.get("__name__")).startswith("vitrail.")
    return isinstance(error, AssertionError) or (ours and isinstance(error, TypeError | AttributeError | NameError))


def _begins_like(name: str, data: bytes) -> bool:
    accepts = Image.OPEN[name][1]
    return accepts is not None and accepts(data[:16]) is True
