"""Do colour profiles give the colours that were meant, and leave alone what is sRGB already?"""

import numpy as np
import pytest
from images.drawn import encoded, quadrants
from PIL import Image, ImageCms

from vitrail.images import colour
from vitrail.images.decode import Decoding, decode


def lab(lightness, a, b):
    """A colour as numbers that no device can misunderstand, in Pillow's 8-bit Lab."""
    return (round(lightness * 255 / 100), a + 128, b + 128)


def profile(space, temperature=0):
    return ImageCms.ImageCmsProfile(ImageCms.createProfile(space, temperature)).tobytes()


def swapped():
    """A valid RGB profile in which the red and the green primaries have changed places."""
    data = bytearray(profile("sRGB"))
    entries = {bytes(data[at : at + 4]): at for at in range(132, 132 + 12 * int.from_bytes(data[128:132], "big"), 12)}
    red, green = entries[b"rXYZ"], entries[b"gXYZ"]
    data[red + 4 : red + 12], data[green + 4 : green + 12] = data[green + 4 : green + 12], data[red + 4 : red + 12]
    return bytes(data)


def pixel(source, **options):
    return np.asarray(decode(source, **options).pixels)[1, 1].astype(int)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP", "AVIF"])
def test_a_profile_is_obeyed_in_every_format_that_carries_one(kind):
    red = Image.new("RGB", (8, 8), (255, 0, 0))
    data = encoded(red, kind, icc_profile=swapped(), **({"lossless": True} if kind == "WEBP" else {}))
    green = pixel(data)
    assert green[1] > 200 > 90 > green[2]
    assert np.abs(pixel(data, options=Decoding(profiles=False)) - [255, 0, 0]).max() <= 3
    assert decode(data).notes == ()


def test_an_srgb_profile_changes_not_one_bit():
    assert np.array_equal(
        np.asarray(decode(encoded(quadrants(), icc_profile=profile("sRGB"))).pixels), np.asarray(quadrants())
    )
    assert colour._conversion(profile("sRGB"), "RGB") == colour.NOTHING_TO_DO
    assert colour._conversion(swapped(), "RGB") not in (colour.NOTHING_TO_DO, colour.IMPOSSIBLE)


def test_a_profile_for_another_kind_of_picture_or_a_broken_one_is_ignored_and_noted():
    for icc in (profile("LAB"), b"no profile at all", profile("sRGB")[:200]):
        picture = decode(encoded(quadrants(), icc_profile=icc))
        assert picture.notes == ("profile_ignored",)
        assert np.array_equal(np.asarray(picture.pixels), np.asarray(quadrants()))
    grey = decode(encoded(quadrants().convert("L"), icc_profile=profile("sRGB")))
    assert grey.notes == ("profile_ignored",)


def test_lab_pictures_have_the_colour_their_numbers_say():
    for numbers, expected in (
        (lab(100, 0, 0), (255, 255, 255)),
        (lab(54.29, 81, 70), (255, 0, 0)),
        (lab(0, 0, 0), (0, 0, 0)),
    ):
        data = encoded(Image.new("LAB", (4, 4), numbers), "TIFF")
        assert np.abs(pixel(data) - expected).max() <= 6  # Lab has 8 bits here


def test_colours_are_converted_before_they_are_laid_on_white():
    see_through = Image.new("RGBA", (4, 4), (255, 0, 0, 0))
    assert pixel(encoded(see_through, icc_profile=swapped())).tolist() == [255, 255, 255]
    half = pixel(encoded(Image.new("RGBA", (4, 4), (255, 0, 0, 128)), icc_profile=swapped()))
    full = pixel(encoded(Image.new("RGB", (4, 4), (255, 0, 0)), icc_profile=swapped()))
    assert np.abs(half - (full * 128 + 255 * 127) / 255).max() <= 1


def test_palettes_go_through_the_profile_of_their_colours():
    image = Image.new("P", (4, 4), 0)
    image.putpalette([255, 0, 0])
    assert pixel(encoded(image, icc_profile=swapped()))[1] > 200


def test_a_grey_model_sees_the_brightness_of_the_converted_colours():
    data = encoded(Image.new("RGB", (4, 4), (255, 0, 0)), icc_profile=swapped())
    red, green, blue = pixel(data)
    assert abs(pixel(data, channels=1) - (0.299 * red + 0.587 * green + 0.114 * blue)) <= 1
