"""Do more than 8 bits and more than 3 channels reach the model as they are, and nothing by a guess?"""

import io
import sys
import zlib

import numpy as np
import pytest
from images.drawn import chunk, encoded, npy, png16, quadrants
from PIL import Image

from vitrail.config import Preprocess
from vitrail.errors import EnvironmentProblem
from vitrail.images import wide
from vitrail.images.decode import Decoding, decode
from vitrail.images.reading import BadPicture, Limits
from vitrail.images.transforms import normalise, read

DEEP = np.random.default_rng(5).integers(0, 65536, (12, 16, 4)).astype(np.uint16)
ORIENTED = Image.Exif()
ORIENTED[0x0112] = 6


def tiff(values, **options):
    file = io.BytesIO()
    pytest.importorskip("tifffile").imwrite(file, values, **options)
    return file.getvalue()


def reason(source, **options):
    with pytest.raises(BadPicture) as caught:
        decode(source, **options)
    return caught.value.reason


@pytest.mark.parametrize("channels", [2, 4, 5, 13])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_any_number_of_channels_arrives_as_it_is(channels, dtype):
    values = np.random.default_rng(channels).integers(0, np.iinfo(dtype).max + 1, (9, 7, channels)).astype(dtype)
    depth = 8 * values.itemsize
    interleaved = tiff(values, photometric="minisblack", planarconfig="contig")
    planar = tiff(np.moveaxis(values, 2, 0), photometric="minisblack", planarconfig="separate")
    sources = {
        "npy": npy(values),
        "channels first": npy(np.moveaxis(values, 2, 0)),
        "tiff": interleaved,
        "planar": planar,
    }
    for name, source in sources.items():
        assert np.array_equal(decode(source, channels=channels, depth=depth).pixels, values), name
    halved = decode(sources["npy"], channels=channels, depth=8).pixels
    assert halved.dtype == np.uint8
    assert np.abs(halved.astype(float) * (np.iinfo(dtype).max / 255) - values).max() <= np.iinfo(dtype).max / 510 + 1e-6


def test_compressed_tiffs_with_many_channels_are_read():
    pytest.importorskip("imagecodecs")
    for compression in ("zlib", "lzw", "packbits"):
        data = tiff(DEEP, photometric="minisblack", planarconfig="contig", compression=compression)
        assert np.array_equal(decode(data, channels=4, depth=16).pixels, DEEP)
    exotic = tiff(DEEP, photometric="minisblack", planarconfig="contig", compression="jpeg2000")
    assert reason(exotic, channels=4, depth=16) == "unknown_format"


def test_sixteen_bit_colour_keeps_its_bits_for_a_model_that_asks():
    pytest.importorskip("imagecodecs")
    colours = DEEP[..., :3]
    for data in (png16(colours), tiff(colours, photometric="rgb"), npy(colours), tiff(colours, compression="zlib")):
        assert np.array_equal(decode(data, depth=16).pixels, colours)
    assert (
        np.abs(np.asarray(decode(png16(colours)).pixels).astype(float) - colours / 257).max() <= 1
    )  # 8 bits: Pillow cuts


def test_sixteen_bit_transparency_is_laid_on_white_in_sixteen_bits():
    pytest.importorskip("imagecodecs")
    expected = DEEP[..., :3] * (DEEP[..., 3:] / 65535) + 65535 * (1 - DEEP[..., 3:] / 65535)
    assert np.abs(decode(png16(DEEP), depth=16).pixels - expected).max() <= 0.5 + 1e-6
    on_black = decode(png16(DEEP), depth=16, options=Decoding(background="black")).pixels
    assert np.abs(on_black - DEEP[..., :3] * (DEEP[..., 3:] / 65535)).max() <= 0.5 + 1e-6
    grey = decode(png16(DEEP[..., 2:]), depth=16, channels=1).pixels
    assert np.abs(grey[..., 0] - expected[..., 2]).max() <= 0.5 + 1e-6
    assert np.array_equal(decode(png16(DEEP), depth=16, channels=4).pixels, DEEP)


def test_a_file_of_eight_bits_fits_a_sixteen_bit_model():
    pixels, _ = read(encoded(quadrants()), preprocess((8, 8)), depth=16)
    assert pixels.dtype == np.uint16
    assert pixels[0, 0].tolist() == [220 * 257, 30 * 257, 30 * 257]


GREYS = np.array([[0, 0.25, 0.5, 1.0]])
KINDS = {
    "uint8": (np.uint8, 255),
    "uint16": (np.uint16, 65535),
    "int16": (np.int16, 32767),
    "uint32": (np.uint32, 2**32 - 1),
    "int32": (np.int32, 2**31 - 1),
    "float32": (np.float32, 1.0),
    "float64": (np.float64, 1.0),
    "float16": (np.float16, 1.0),
}


@pytest.mark.parametrize("kind", KINDS)
def test_grey_of_any_number_type_is_scaled_by_its_full_range(kind):
    dtype, full = KINDS[kind]
    values = (GREYS * full).round(0 if full > 1 else 8).astype(dtype)
    for data in (npy(values), tiff(values), tiff(values, byteorder=">")):
        array = np.asarray(decode(data).pixels)
        assert array.shape == (1, 4, 3)
        assert np.abs(array[0, :, 0] - [0, 63.75, 127.5, 255]).max() <= 0.76
        deep = np.asarray(decode(data, channels=1, depth=16).pixels)
        white = np.iinfo(deep.dtype).max  # a file of 8 bits stays one
        assert np.abs(deep.ravel() / white - GREYS).max() <= 0.003


def test_where_zero_is_white_the_picture_is_turned_round():
    dark = np.full((4, 4), 60000, np.uint16)
    assert np.asarray(decode(tiff(dark, photometric="miniswhite")).pixels)[0, 0, 0] == round((65535 - 60000) / 257)
    assert np.asarray(decode(tiff(dark, photometric="minisblack")).pixels)[0, 0, 0] == round(60000 / 257)


def test_twelve_bits_in_a_pgm_are_full_at_their_own_white():
    data = b"P5 2 1 4095\n" + np.array([4095, 2048], ">u2").tobytes()
    assert np.asarray(decode(data).pixels)[0, :, 0].tolist() == [255, 128]


@pytest.mark.parametrize(
    "values",
    [
        np.array([[0.0, 200.0]]),
        np.array([[-0.5, 0.5]]),
        np.array([[np.nan, 0.5]]),
        np.array([[np.inf, 0.5]]),
        np.array([[-3, 5]], np.int16),
    ],
)
def test_values_that_mean_no_brightness_are_refused_and_never_stretched(values):
    assert reason(npy(values)) == "value_range"
    assert reason(tiff(values)) == "value_range"


def test_floats_a_hair_outside_the_range_are_taken():
    array = np.asarray(decode(npy(np.array([[-1e-7, 1 + 1e-7]]))).pixels)
    assert array[0, :, 0].tolist() == [0, 255]


def test_a_picture_with_other_channels_than_the_model_is_refused():
    for channels, source in (
        (4, encoded(quadrants())),
        (3, npy(DEEP)),
        (1, npy(DEEP)),
        (5, npy(DEEP)),
        (2, npy(DEEP[..., 0])),
    ):
        assert reason(source, channels=channels) == "wrong_channels"


def test_the_channels_of_an_ordinary_picture_are_taken_as_they_are_where_they_fit():
    see_through = Image.new("RGBA", (3, 3), (10, 20, 30, 40))
    assert decode(encoded(see_through), channels=4).pixels[0, 0].tolist() == [10, 20, 30, 40]
    assert decode(encoded(Image.new("LA", (3, 3), (9, 8))), channels=2).pixels[0, 0].tolist() == [9, 8]
    assert decode(encoded(Image.new("CMYK", (3, 3), (1, 2, 3, 4)), "TIFF"), channels=4).pixels[0, 0].tolist() == [
        1,
        2,
        3,
        4,
    ]


def test_colours_become_grey_as_pillow_does_it_also_in_sixteen_bits():
    colours = np.random.default_rng(1).integers(0, 256, (20, 20, 3), np.uint8)
    expected = np.asarray(Image.fromarray(colours).convert("L"))
    assert np.array_equal(wide.fit_channels(colours, 1)[..., 0], expected)
    deep = wide.fit_channels(np.full((1, 1, 3), 65535, np.uint16), 1)
    assert deep.item() == 65535


def test_wide_pictures_are_turned_upright_too():
    values = np.arange(6, dtype=np.uint8).reshape(2, 3) * 40
    stored = tiff(
        np.stack([values] * 5, axis=2), photometric="minisblack", planarconfig="contig", extratags=[(274, "H", 1, 6)]
    )
    assert np.array_equal(decode(stored, channels=5).pixels[..., 0], np.rot90(values, -1))
    deep = Image.fromarray(values.astype(np.uint16) * 257)
    turned = decode(encoded(deep, exif=ORIENTED), channels=1)
    assert np.array_equal(np.asarray(turned.pixels), np.rot90(values, -1))
    assert (turned.width, turned.height) == (2, 3)
    for number in range(1, 9):
        image = Image.fromarray(values)
        exif = Image.Exif()
        exif[0x0112] = number
        assert np.array_equal(
            wide.upright(values, number), np.asarray(decode(encoded(image, exif=exif), channels=1).pixels)
        )


def test_a_npy_that_is_a_bomb_a_pickle_or_a_stump_is_refused(monkeypatch):
    monkeypatch.setattr(np, "load", None)  # never called
    objects = io.BytesIO()
    np.save(objects, np.array([[print]], dtype=object), allow_pickle=True)
    huge = npy(np.zeros((2, 2), np.uint8)).replace(b"(2, 2), }" + b" " * 12, b"(99999, 99999), }    ")
    assert reason(objects.getvalue()) == "corrupt"
    assert reason(huge) in ("side_too_long", "too_many_pixels")
    assert reason(npy(np.zeros((8, 8, 3), np.uint8))[:-5]) == "truncated"
    assert reason(npy(np.zeros((2, 2), "U4"))) == "corrupt"
    assert reason(npy(np.zeros((2, 2), complex))) == "corrupt"
    assert reason(npy(np.zeros(5, np.uint8))) == "corrupt"
    assert reason(npy(np.zeros((0, 5), np.uint8))) == "corrupt"
    assert reason(npy(np.zeros((2, 2, 2, 3), np.uint8))) == "corrupt"
    assert reason(b"\x93NUMPY\x01\x00\x05\x00((((((" + b"(" * 9000) == "corrupt"
    assert reason(b"\x93NUMPY\x09\x00") == "corrupt"


def test_an_array_above_the_limit_is_refused():
    options = Decoding(limits=Limits(pixels=10))
    assert reason(npy(np.zeros((8, 8, 3), np.uint8)), options=options) == "too_many_pixels"
    data = tiff(np.zeros((8, 8, 5), np.uint8), photometric="minisblack", planarconfig="contig")
    assert reason(data, channels=5, options=options) == "too_many_pixels"


def test_a_missing_library_is_named_with_the_command_that_installs_it(monkeypatch):
    data = tiff(DEEP, photometric="minisblack", planarconfig="contig")
    monkeypatch.setitem(sys.modules, "tifffile", None)
    with pytest.raises(EnvironmentProblem, match=r"tifffile.*\n.*\n.*pip install 'vitrail\[scientific\]'"):
        decode(data, channels=4)


def test_deep_pictures_are_resized_without_rounding_twice():
    ramp = np.linspace(0, 65535, 64 * 64).astype(np.uint16).reshape(64, 64)
    pixels, picture = read(png16(ramp), preprocess((16, 16), channels=1), depth=16)
    assert (picture.width, pixels.dtype, pixels.shape) == (64, np.uint16, (16, 16, 1))
    exact = ramp.astype(float).reshape(16, 4, 16, 4).mean(axis=(1, 3))
    assert np.abs(pixels[..., 0] - exact)[2:-2, 2:-2].max() < 2
    assert len(np.unique(pixels)) > 200


def test_sixteen_bit_pixels_are_normalised_by_sixteen_bits():
    batch = np.array([0, 65535], np.uint16).reshape(1, 1, 2, 1)
    assert normalise(batch, preprocess((1, 2), channels=1)).ravel().tolist() == pytest.approx([-1, 1], abs=1e-6)


def test_a_profile_that_cannot_be_used_on_deep_pictures_is_noted():
    profile = chunk(b"iCCP", b"x\0\0" + zlib.compress(b"p" * 200))
    data = png16(DEEP[..., 0])
    assert decode(data[:33] + profile + data[33:]).notes == ("profile_ignored",)


def preprocess(size, channels=3):
    return Preprocess(size=size, resize=size, mean=(0.5,) * channels, std=(0.5,) * channels)
