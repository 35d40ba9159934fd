"""Pictures made for tests: small, of known colours, in every format and mode."""

import io
import struct
import zlib

import numpy as np
from PIL import Image

QUADRANTS = np.array(
    [[[220, 30, 30], [30, 200, 40]], [[40, 60, 210], [230, 220, 40]]], np.uint8
)  # red green blue yellow


def quadrants(width=48, height=32):
    """Four colours: every rotation and every mirror of it is a different picture."""
    return Image.fromarray(QUADRANTS).resize((width, height), Image.Resampling.NEAREST)


def encoded(image, kind="PNG", **options):
    """The bytes of a file."""
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def chunk(name, content):
    """A PNG chunk with its checksum."""
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def png_header(width, height, bits=8, colour=2):
    """A PNG that announces a size and has next to no pixels."""
    header = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")
    )


def png16(values):
    """A 16-bit PNG of an array, height x width or height x width x 2, 3 or 4."""
    height, width = values.shape[:2]
    colour = {1: 0, 2: 4, 3: 2, 4: 6}[1 if values.ndim == 2 else values.shape[2]]
    rows = values.astype(">u2").reshape(height, -1).view(np.uint8)
    body = b"".join(b"\0" + row.tobytes() for row in rows)
    header = struct.pack(">IIBBBBB", width, height, 16, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(body)) + chunk(b"IEND", b"")


def npy(values):
    """A .npy file."""
    file = io.BytesIO()
    np.save(file, values)
    return file.getvalue()
