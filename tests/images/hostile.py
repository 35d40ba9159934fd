"""Some 350 files that mean harm, or were just unlucky; every verb that reads pictures has to survive them.

`write_corpus(folder)` writes them and says for each what is allowed to become of it: OK, some reasons, or ANY (mutants
may be readable or not). Everything is made from seeds; nothing is downloaded.
"""

import io
import os
import random
import struct
import zlib
from pathlib import Path

import numpy as np
from images.drawn import chunk, encoded, npy, png16, png_header, quadrants
from PIL import Image

OK = frozenset({"ok"})
ANY = frozenset({"ok", "corrupt", "truncated", "unknown_format", "too_many_pixels", "side_too_long", "value_range"}) | {
    "metadata_too_large",
    "wrong_channels",
    "too_many_scans",
    "out_of_memory",
}
BROKEN = frozenset({"corrupt", "truncated", "unknown_format"})
TOO_LARGE = frozenset({"too_many_pixels", "side_too_long"})
FORMATS = {
    "jpg": ("JPEG", {"quality": 90}),
    "progressive.jpg": ("JPEG", {"progressive": True}),
    "png": ("PNG", {}),
    "webp": ("WEBP", {"quality": 80}),
    "lossless.webp": ("WEBP", {"lossless": True}),
    "gif": ("GIF", {}),
    "bmp": ("BMP", {}),
    "tif": ("TIFF", {}),
    "lzw.tif": ("TIFF", {"compression": "tiff_lzw"}),
    "deflate.tif": ("TIFF", {"compression": "tiff_adobe_deflate"}),
    "ppm": ("PPM", {}),
    "avif": ("AVIF", {"quality": 60}),
}


def write_corpus(folder, mutants=8, megapixels=8):
    """{path below the folder: the set of words allowed for it}; `megapixels` is the size of the largest."""
    expected = {}
    for name, content, allowed in everything(mutants, megapixels):
        path = Path(folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        expected[name] = allowed
    return expected | unusual_entries(Path(folder))


def everything(mutants, megapixels=8):
    for family in (ordinary, oriented, sizes, cut_short, liars, bombs, strangers, arrays, named):
        yield from ((f"{family.__name__}/{name}", content, allowed) for name, content, allowed in family())
    yield from mutated(mutants)
    yield from large(megapixels)


def texture(width=64, height=48, seed=0):
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8))


def ordinary():
    for suffix, (kind, options) in FORMATS.items():
        yield f"plain.{suffix}", encoded(texture(), kind, **options), OK
        yield f"wrong.{suffix}.txt", encoded(texture(), kind, **options), OK
        yield f"tail.{suffix}", encoded(texture(), kind, **options) + os.urandom(50), OK
    for mode in ("1", "L", "LA", "P", "RGB", "RGBA"):
        yield f"mode-{mode}.png", encoded(texture().convert(mode)), OK
    for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr", "LAB", "I;16", "I", "F"):
        values = {"I;16": np.uint16, "I": np.int32, "F": np.float32}
        image = Image.fromarray(np.ones((8, 8), values[mode])) if mode in values else texture().convert("RGB")
        image = image if mode in values else Image.new(mode, (8, 8)) if mode == "LAB" else image.convert(mode)
        yield f"mode-{mode.replace(';', '')}.tif", encoded(image, "TIFF"), OK
    for mode in ("L", "CMYK"):
        yield f"mode-{mode}.jpg", encoded(texture().convert(mode), "JPEG"), OK
    yield "deep.png", png16(np.arange(64, dtype=np.uint16).reshape(8, 8) * 1000), OK
    yield "deep-colour.png", png16(np.full((8, 8, 3), 40_000, np.uint16)), OK
    yield "deep-clear.png", png16(np.full((8, 8, 4), 40_000, np.uint16)), OK
    yield "transparent.gif", encoded(texture().convert("P"), "GIF", transparency=3), OK
    for kind in ("GIF", "WEBP", "PNG", "TIFF", "AVIF"):
        yield f"moving.{kind}", encoded(texture(), kind, save_all=True, append_images=[texture(seed=1)]), OK
    yield "profile.jpg", encoded(texture(), "JPEG", icc_profile=b"not a profile" * 20), OK


def oriented():
    for number in (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 65535):
        exif = Image.Exif()
        exif[0x0112] = number
        for kind in ("JPEG", "PNG", "WEBP", "TIFF"):
            yield f"{number}.{kind}", encoded(quadrants(), kind, exif=exif), OK
    broken = (
        b"Exif\0\0",
        b"Exif\0\0MM\0*\xff\xff\xff\xff",
        b"Exif\0\0II*\0\x08\0\0\0\xff\xff" + b"\x12\x01\x03\0" * 50,
        b"\0" * 9,
    )
    for number, exif in enumerate(broken):
        yield f"broken{number}.jpg", encoded(quadrants(), "JPEG", exif=exif), OK
        yield f"broken{number}.png", encoded(quadrants(), exif=exif), OK


def sizes():
    for width, height in ((1, 1), (1, 2), (3, 1), (1, 10_000), (10_000, 1), (2, 30_000), (257, 1)):
        for kind in ("PNG", "JPEG", "BMP", "GIF", "TIFF"):
            yield f"{width}x{height}.{kind}", encoded(Image.new("RGB", (width, height), "teal"), kind), OK


def cut_short():
    for suffix, (kind, options) in FORMATS.items():
        whole = encoded(texture(), kind, **options)
        for percent in (2, 20, 50, 80, 95):
            yield f"{percent}.{suffix}", whole[: len(whole) * percent // 100], BROKEN
    yield "nothing.jpg", b"", frozenset({"empty"})
    yield "one-byte.png", b"\x89", frozenset({"unknown_format"})


def liars():
    """Headers that announce what is not there."""
    for width, height in ((12_000, 12_000), (20_000, 20_000), (2**31 - 1, 1), (1, 2**31 - 1), (40_000, 40_000)):
        large = TOO_LARGE | BROKEN if width * height < 256e6 else TOO_LARGE
        yield f"{width}x{height}.png", png_header(width, height), large
        yield f"{width}x{height}.ppm", f"P6 {width} {height} 255\n".encode() + bytes(99), large | BROKEN
    for width, height in ((0, 0), (0, 5), (5, 0)):
        yield f"{width}x{height}.png", png_header(width, height), BROKEN
        yield f"{width}x{height}.gif", b"GIF89a" + struct.pack("<HHBBB", width, height, 0, 0, 0), BROKEN
    yield "65535.gif", b"GIF89a" + struct.pack("<HHBBB", 65535, 65535, 0, 0, 0) + b"," + bytes(20), TOO_LARGE | BROKEN
    bmp = encoded(texture(), "BMP")
    for number, (width, height) in enumerate(((2**30, 2), (-5, 5), (5, -5), (100_000, 100_000), (30_000, 30_000))):
        yield f"{number}.bmp", bmp[:18] + struct.pack("<ii", width, height) + bmp[26:], TOO_LARGE | BROKEN | OK
    jpeg = encoded(texture(), "JPEG")
    frame = jpeg.index(b"\xff\xc0") + 5
    for number, (height, width) in enumerate(((65_500, 65_500), (0, 100), (100, 0), (15_000, 15_000))):
        yield f"{number}.jpg", jpeg[:frame] + struct.pack(">HH", height, width) + jpeg[frame + 4 :], TOO_LARGE | BROKEN
    webp = encoded(texture(), "WEBP", lossless=True)
    yield "16383.webp", webp[:21] + struct.pack("<I", 16382 | 16382 << 14) + webp[25:], TOO_LARGE | BROKEN
    tiff = encoded(texture(), "TIFF")
    for number, (tag, value) in enumerate(
        ((256, 2**31), (257, 2**31), (258, 9999), (259, 34925), (262, 99), (277, 65535), (278, 0), (273, 2**32 - 1))
    ):
        yield (
            f"{number}.tif",
            _with_tag(tiff, tag, value),
            TOO_LARGE | BROKEN | OK | {"wrong_channels", "out_of_memory"},
        )
    yield "bits-99.png", png_header(4, 4, bits=99), BROKEN
    yield "colour-7.png", png_header(4, 4, colour=7), BROKEN
    yield "no-palette.png", png_header(4, 4, colour=3), BROKEN | OK


def bombs():
    plain = encoded(texture())
    text, profile = zlib.compress(bytes(60_000_000), 9), zlib.compress(bytes(5_000_000), 9)
    big = frozenset({"metadata_too_large"})
    yield "text.png", plain[:33] + chunk(b"zTXt", b"Comment\0\0" + text) + plain[33:], big
    yield "itxt.png", plain[:33] + chunk(b"iTXt", b"Comment\0\1\0\0\0" + text) + plain[33:], big
    yield "texts.png", plain[:33] + chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(1_000_000))) * 70 + plain[33:], big
    yield "profile.png", plain[:33] + chunk(b"iCCP", b"x\0\0" + profile) + plain[33:], big | OK
    yield "profile.jpg", encoded(texture(), "JPEG", icc_profile=os.urandom(3_000_000)), big
    yield "exif.jpg", encoded(texture(), "JPEG", exif=b"Exif\0\0" + os.urandom(60_000)), OK
    yield (
        "pixels.png",
        png_header(30, 30)[:33] + chunk(b"IDAT", zlib.compress(bytes(80_000_000), 9)) + chunk(b"IEND", b""),
        OK,
    )
    scans = encoded(texture(512, 512), "JPEG", progressive=True)
    last = scans.rindex(b"\xff\xda")
    yield "scans.jpg", scans[:last] + scans[last:-2] * 500 + scans[-2:], frozenset({"too_many_scans"})
    frame = encoded(Image.new("P", (8, 8)), "GIF")
    body = frame[frame.index(b",") : -1]
    yield "frames.gif", frame[:-1] + body * 20_000 + b";", OK
    tiff = bytearray(encoded(texture(), "TIFF"))
    start = struct.unpack("<I", tiff[4:8])[0]
    entries = struct.unpack("<H", tiff[start : start + 2])[0]
    tiff[start + 2 + 12 * entries : start + 6 + 12 * entries] = struct.pack("<I", start)  # the next page is this page
    yield "endless.tif", bytes(tiff), OK | BROKEN
    yield "tags.tif", b"II*\0\x08\0\0\0\xff\xff" + struct.pack("<HHII", 256, 4, 2**31, 8) * 65535, BROKEN | TOO_LARGE
    yield (
        "apng.png",
        encoded(texture(8, 8), "PNG", save_all=True, append_images=[texture(8, 8, s) for s in range(300)]),
        OK,
    )


def large(megapixels):
    """A hundred times as many bytes in memory as in the file, within the limits."""
    blank = Image.new("L", (8_000, megapixels * 125))
    yield "large/blank.png", encoded(blank), OK
    yield "large/blank.tif", encoded(blank, "TIFF", compression="tiff_lzw"), OK
    yield "large/blank.webp", encoded(blank.convert("RGB").resize((8_000, 1_000)), "WEBP"), OK


def strangers():
    """Other kinds of files under the names of pictures."""
    contents = {
        "text": b"hello\n",
        "html": b"<!doctype html><title>404</title>",
        "svg": b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>",
        "eps": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n(x) run\n",
        "pdf": b"%PDF-1.7\n1 0 obj<<>>endobj",
        "psd": b"8BPS\0\1" + bytes(60),
        "fits": b"SIMPLE  =                    T" + b" " * 2850,
        "zip": b"PK\3\4" + bytes(60),
        "gzip": b"\x1f\x8b\x08" + bytes(60),
        "wav": b"RIFF\x24\0\0\0WAVEfmt " + bytes(40),
        "mp4": b"\0\0\0\x18ftypmp42" + bytes(40),
        "heic": b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(40),
        "elf": b"\x7fELF" + bytes(60),
        "pickle": b"\x80\x04\x95\x1a\0\0\0\0\0\0\0\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.",
        "zeros": bytes(5000),
        "ones": b"\xff" * 5000,
        "noise": random.Random(3).randbytes(5000),
        "ico": encoded(texture(16, 16), "ICO"),
        "tga": encoded(texture(), "TGA"),
        "jp2": encoded(texture(), "JPEG2000"),
        "pcx": encoded(texture(), "PCX"),
        "lfs": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",
    }
    yield from ((f"{name}.jpg", content, BROKEN) for name, content in contents.items())


def arrays():
    values = np.random.default_rng(0).integers(0, 256, (9, 8, 3), np.uint8)
    yield "colour.npy", npy(values), OK
    yield "grey.npy", npy(values[..., 0]), OK
    yield "planes.npy", npy(np.moveaxis(values, 2, 0)), OK
    yield "unit.npy", npy(values / 255), OK
    yield "float255.npy", npy(values.astype(np.float32)), frozenset({"value_range"})
    yield "nan.npy", npy(np.full((4, 4), np.nan)), frozenset({"value_range"})
    yield "five.npy", npy(np.zeros((4, 4, 5), np.uint8)), frozenset({"wrong_channels"})
    yield "line.npy", npy(np.zeros(9)), BROKEN
    yield "short.npy", npy(values)[:-20], BROKEN
    pickled = io.BytesIO()
    np.save(pickled, np.array([[os.system]], dtype=object), allow_pickle=True)
    yield "objects.npy", pickled.getvalue(), BROKEN
    yield "huge.npy", npy(values).replace(b"(9, 8, 3), }      ", b"(99999, 99999), } "), TOO_LARGE
    yield "header.npy", b"\x93NUMPY\x01\0\xff\xff" + b"(" * 70_000, BROKEN
    yield "code.npy", npy(values).replace(b"'|u1'", b"exit()"), BROKEN


def named():
    """Names that break tables, terminals and comparisons."""
    names = ["new\nline", "tab\there", 'quote"', "it's", "comma,semi;", "=1+1", "@sum", "-rf", " leading", "trailing "]
    names += [
        "[a-z]*",
        "percent%41",
        "back\\slash",
        "caf\u00e9",
        "cafe\u0301",
        "日本語",
        "emoji😀",
        "\u202egnp",
        "\x1b[31mred",
    ]
    names += ["x" * 251, "two.dots", "null", "nan", "True", "$(touch pwned)", "a&b", "<script>", "upper"]
    names = [f"{name}.png" for name in names] + ["UPPER.PNG", "no-suffix", "1"]
    yield from ((name, encoded(texture(seed=number)), OK) for number, name in enumerate(names))


def mutated(each):
    """Bytes changed, cut out, doubled and moved, in every format; the same ones every time."""
    chance = random.Random(11)
    for suffix, (kind, options) in FORMATS.items():
        whole = encoded(texture(40, 30), kind, **options)
        for number in range(each):
            yield f"mutated/{number}.{suffix}", mutate(whole, chance), ANY


def mutate(data, chance):
    """One to eight small accidents, more of them near the header."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 8)):
        at = min(int(chance.expovariate(4) * len(changed)), len(changed) - 1) if len(changed) > 1 else 0
        length = chance.choice((1, 1, 2, 4, 16))
        match chance.randrange(6):
            case 0:
                changed[at] ^= 1 << chance.randrange(8)
            case 1:
                changed[at : at + length] = chance.randbytes(length)
            case 2:
                del changed[at : at + length]
            case 3:
                changed[at:at] = changed[at : at + length]
            case 4:
                changed[at : at + length] = chance.choice((b"\0", b"\xff", b"\x7f", b"\x80")) * length
            case 5:
                other = chance.randrange(len(changed))
                changed[at : at + length] = changed[other : other + length]
        changed = changed or bytearray(b"\0")
    return bytes(changed)


def unusual_entries(folder):
    """What is in a folder and is no file with a picture."""
    (folder / "odd").mkdir()
    os.mkfifo(folder / "odd" / "pipe.jpg")
    (folder / "odd" / "loop.jpg").symlink_to("loop.jpg")
    (folder / "odd" / "gone.jpg").symlink_to("nowhere.jpg")
    (folder / "odd" / "device.jpg").symlink_to("/dev/zero")
    (folder / "odd" / "round").symlink_to("..")
    (folder / "odd" / os.fsdecode(b"caf\xe9.jpg")).write_bytes(encoded(texture()))
    with (folder / "odd" / "sparse.jpg").open("wb") as file:
        file.truncate(2**40)
    return {
        "odd/pipe.jpg": {"not_a_file"},
        "odd/loop.jpg": {"symlink_loop"},
        "odd/gone.jpg": {"missing"},
        "odd/device.jpg": {"not_a_file"},
        "odd/" + os.fsdecode(b"caf\xe9.jpg"): {"undecodable_name"},
        "odd/sparse.jpg": {"too_many_bytes"},
    }


def _with_tag(tiff, tag, value):
    """The same TIFF with one number of its directory changed."""
    changed = bytearray(tiff)
    start = struct.unpack("<I", changed[4:8])[0]
    for entry in range(struct.unpack("<H", changed[start : start + 2])[0]):
        at = start + 2 + 12 * entry
        if struct.unpack("<H", changed[at : at + 2])[0] == tag:
            changed[at + 2 : at + 12] = struct.pack("<HII", 4, 1, value & 0xFFFFFFFF)
    return bytes(changed)
