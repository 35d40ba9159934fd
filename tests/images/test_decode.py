"""Does every kind of file become the picture a person sees, or a reason?"""

import os
import struct
import subprocess
import sys
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from images.drawn import chunk, encoded, npy, png16, png_header, quadrants
from PIL import Image

from vitrail.errors import UsageError
from vitrail.images import decode as decoding
from vitrail.images.decode import Decoding, decode
from vitrail.images.pillow import FORMATS, count_scans
from vitrail.images.reading import BadPicture, Limits

LOSSLESS = {"PNG": {}, "BMP": {}, "TIFF": {}, "PPM": {}, "WEBP": {"lossless": True}, "GIF": {}}
LOSSY = {"JPEG": {"quality": 95}, "AVIF": {"quality": 95}}


def pixels(source, **options):
    return np.asarray(decode(source, **options).pixels)


def reason(source, **options):
    with pytest.raises(BadPicture) as caught:
        decode(source, **options)
    return caught.value.reason


def corners(array):
    return array[[2, 2, -3, -3], [2, -3, 2, -3]].astype(int)


@pytest.mark.parametrize("kind", [*LOSSLESS, *LOSSY])
def test_every_format_on_the_list_is_read(kind, tmp_path):
    (tmp_path / "wrong-name.txt").write_bytes(encoded(quadrants(), kind, **(LOSSLESS | LOSSY)[kind]))
    picture = decode(tmp_path / "wrong-name.txt")
    assert (picture.format, picture.width, picture.height, picture.notes) == (kind, 48, 32, ())
    difference = np.abs(np.asarray(picture.pixels).astype(int) - np.asarray(quadrants()))
    assert corners(difference).max() <= (0 if kind in LOSSLESS else 6)


def test_paths_bytes_pictures_and_arrays_are_the_same_picture(tmp_path):
    data = encoded(quadrants())
    (tmp_path / "a.png").write_bytes(data)
    sources = [
        str(tmp_path / "a.png"),
        tmp_path / "a.png",
        data,
        quadrants(),
        np.asarray(quadrants()),
        npy(np.asarray(quadrants())),
    ]
    assert all(np.array_equal(pixels(source), np.asarray(quadrants())) for source in sources)
    with pytest.raises(UsageError, match="given as int"):
        decode(3)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"])
def test_all_eight_orientations_show_the_same_picture(kind):
    options = {"quality": 95} if kind in ("JPEG", "AVIF") else {"lossless": True} if kind == "WEBP" else {}
    upright = corners(pixels(encoded(quadrants(), kind, **options)))
    turns = {
        1: None,
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,  # stored turned left, to be shown turned right
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }
    for number, turn in turns.items():
        stored = quadrants().transpose(turn) if turn is not None else quadrants()
        exif = Image.Exif()
        exif[0x0112] = number
        picture = decode(encoded(stored, kind, exif=exif, **options))
        assert (picture.width, picture.height) == (48, 32), number
        assert np.abs(corners(np.asarray(picture.pixels)) - upright).max() <= (8 if kind in ("JPEG", "AVIF") else 0), (
            number
        )


def test_an_orientation_that_makes_no_sense_is_ignored():
    for number in (0, 9, 77):
        exif = Image.Exif()
        exif[0x0112] = number
        assert np.array_equal(pixels(encoded(quadrants(), exif=exif)), np.asarray(quadrants()))
    assert np.array_equal(pixels(encoded(quadrants(), exif=b"Exif\0\0garbage")), np.asarray(quadrants()))


def test_cmyk_is_ink_whoever_wrote_the_jpeg():
    inks = Image.new("CMYK", (32, 32), (0, 255, 255, 0))  # magenta and yellow: red
    for data in (encoded(inks, "JPEG", quality=95), encoded(inks, "TIFF")):
        assert np.abs(pixels(data)[16, 16].astype(int) - [255, 0, 0]).max() <= 6
    black = Image.new("CMYK", (32, 32), (0, 0, 0, 255))
    assert pixels(encoded(black, "JPEG"))[16, 16].max() <= 3


def test_adobe_ycck_is_read_inverted():
    """As Photoshop writes it: YCC made of inverted inks, and a marker that says so."""
    data = encoded(Image.new("CMYK", (16, 16), (0, 200, 100, 30)), "JPEG", quality=100, subsampling=0)
    position = data.index(b"Adobe") + 11
    assert data[position] == 0  # no colour transform: plain CMYK
    ycck = data[:position] + b"\x02" + data[position + 1 :]
    y, cb, cr, white = 255.0, 55.0, 155.0, 225.0  # what is stored: 255 - ink, now to be taken for Y Cb Cr K
    inks = [y + 1.402 * (cr - 128), y - 0.344136 * (cb - 128) - 0.714136 * (cr - 128), y + 1.772 * (cb - 128)]
    expected = (255 - np.clip(inks, 0, 255)) * white / 255
    assert np.abs(pixels(ycck)[8, 8] - expected).max() <= 3


def test_transparency_is_laid_on_white_or_on_black():
    half = Image.new("RGBA", (4, 4), (200, 0, 0, 128))
    assert pixels(encoded(half))[0, 0].tolist() == [227, 127, 127]
    assert pixels(encoded(half), options=Decoding(background="black"))[0, 0].tolist() == [100, 0, 0]
    grey = Image.new("LA", (4, 4), (10, 0))
    assert pixels(encoded(grey))[0, 0].tolist() == [255, 255, 255]
    assert pixels(encoded(grey), channels=1)[0, 0] == 255


def test_a_palette_with_a_transparent_colour_is_laid_on_white():
    image = Image.new("P", (4, 4), 1)
    image.putpalette([9, 9, 9, 200, 100, 50])
    image.putpixel((0, 0), 0)
    for kind in ("GIF", "PNG"):
        array = pixels(encoded(image, kind, transparency=0))
        assert array[0, 0].tolist() == [255, 255, 255], kind
        assert array[3, 3].tolist() == [200, 100, 50], kind


@pytest.mark.parametrize("mode", ["L", "RGB", "1"])
def test_one_transparent_colour_of_a_png_is_laid_on_white(mode):
    colour = {"L": 7, "RGB": (7, 8, 9), "1": 0}[mode]
    image = Image.new(mode, (4, 4), {"L": 90, "RGB": (90, 91, 92), "1": 1}[mode])
    image.putpixel((1, 1), colour)
    array = pixels(encoded(image, transparency=colour))
    assert array[1, 1].tolist() == [255, 255, 255]
    assert array[0, 0].max() in (90, 92, 255)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"])
def test_grey_stays_the_same_grey_in_every_mode(mode):
    level = 153
    if mode == "I;16":
        image = Image.fromarray(np.full((4, 4), level * 257, np.uint16))
    else:
        image = Image.new("L", (4, 4), 255 if mode == "1" else level).convert(mode)
    array = pixels(encoded(image))
    assert array.shape == (4, 4, 3)
    assert set(array.ravel().tolist()) == {255 if mode == "1" else level}
    grey = pixels(encoded(image), channels=1)
    assert grey.shape == (4, 4)
    assert set(grey.ravel().tolist()) == {255 if mode == "1" else level}


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG", "TIFF", "AVIF"])
def test_of_a_moving_picture_the_first_frame_is_taken_and_noted(kind):
    frames = [Image.new("RGB", (16, 16), colour) for colour in ("red", "blue", "lime")]
    still = decode(encoded(frames[0], kind))
    moving = decode(encoded(frames[0], kind, save_all=True, append_images=frames[1:], duration=20))
    assert moving.notes == ("first_frame",)
    assert still.notes == ()
    assert np.abs(np.asarray(moving.pixels)[8, 8].astype(int) - [255, 0, 0]).max() <= 3


@pytest.mark.parametrize("kind", FORMATS)
def test_half_a_file_is_an_error_and_loads_only_if_asked(kind):
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8))
    data = encoded(image, kind)
    assert reason(data[: len(data) // 2]) in ("truncated", "corrupt")
    if kind in ("WEBP", "AVIF"):  # their decoders give nothing back for a part
        assert reason(data[: len(data) // 2], options=Decoding(truncated="load")) in ("truncated", "corrupt")
        return
    picture = decode(data[: len(data) * 7 // 10], options=Decoding(truncated="load"))
    assert "truncated" in picture.notes
    whole, part = pixels(data).astype(int), np.asarray(picture.pixels).astype(int)
    assert part.shape == whole.shape
    arrived = slice(-16, None) if kind == "BMP" else slice(16)  # a BMP begins at the bottom
    assert np.abs(whole - part)[arrived].max() <= 1
    assert decode(data, options=Decoding(truncated="load")).notes == ()


def test_a_truncated_file_is_never_taken_for_a_whole_one():
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (24, 24, 3), np.uint8))
    for kind in FORMATS:
        data = encoded(image, kind)
        whole = pixels(data)
        for length in range(1, len(data), max(1, len(data) // 60)):
            try:
                part = pixels(data[:length])
            except BadPicture:
                continue
            assert np.array_equal(part, whole), (kind, length)  # only bytes after the pixels were missing


def test_other_threads_see_errors_while_one_loads_truncated_files():
    data = encoded(Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)), "JPEG")
    half, lenient = data[: len(data) // 2], Decoding(truncated="load")
    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(reason, half) if n % 2 else pool.submit(decode, half, options=lenient) for n in range(200)]
        results = [job.result() for job in jobs]
    assert set(results[1::2]) == {"truncated"}
    assert all("truncated" in picture.notes for picture in results[::2])


def test_the_header_is_refused_before_a_pixel_is_decoded():
    assert reason(png_header(12_000, 12_000), options=Decoding(limits=Limits(pixels=10**8))) == "too_many_pixels"
    assert reason(png_header(40_000, 10)) == "side_too_long"
    assert reason(encoded(quadrants()), options=Decoding(limits=Limits(pixels=100))) == "too_many_pixels"
    assert reason(quadrants(), options=Decoding(limits=Limits(pixels=100))) == "too_many_pixels"
    assert reason(np.zeros((50_000, 2, 3), np.uint8)) == "side_too_long"
    assert reason(encoded(quadrants()), options=Decoding(limits=Limits(file_bytes=50))) == "too_many_bytes"


def test_limits_replace_pillows_own_and_leave_it_as_it_was(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    assert pixels(encoded(quadrants())).shape == (32, 48, 3)  # 1,536 pixels: Pillow alone would refuse
    assert Image.MAX_IMAGE_PIXELS == 100
    assert reason(b"no picture") == "unknown_format"
    assert Image.MAX_IMAGE_PIXELS == 100


def test_a_colour_profile_or_text_above_the_limit_is_refused():
    assert reason(encoded(quadrants(), "JPEG", icc_profile=bytes(2_000_000))) == "metadata_too_large"
    assert pixels(encoded(quadrants(), "JPEG", icc_profile=bytes(2_000_000)), options=Decoding(profiles=False)).any()
    data, text = encoded(quadrants()), zlib.compress(bytes(50_000_000), 9)
    assert reason(data[:33] + chunk(b"zTXt", b"Comment\0\0" + text) + data[33:]) == "metadata_too_large"


def test_a_jpeg_with_thousands_of_scans_is_refused_without_decoding_it():
    data = encoded(quadrants(640, 640), "JPEG", progressive=True)
    assert 2 <= count_scans(data) <= 20
    start = data.rindex(b"\xff\xda")
    bomb = data[:start] + data[start:-2] * 3000 + data[-2:]
    assert reason(bomb) == "too_many_scans"
    # A phone's moving photo has a film behind the picture, in which these two bytes occur by chance.
    assert decode(encoded(quadrants(), "JPEG") + b"\xff\xda" * 5000).notes == ()


def test_formats_that_are_not_on_the_list_are_not_even_tried():
    for data in (
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n",
        b"8BPS\0\1" + bytes(100),
        b"%PDF-1.4\n",
        b"SIMPLE  =                    T" + b" " * 2850,
        encoded(quadrants(), "ICO"),
        encoded(quadrants(), "TGA"),
        encoded(quadrants(), "JPEG2000"),
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
    ):
        assert reason(data) == "unknown_format", data[:10]


def test_broken_files_have_a_reason_and_no_other_exception_escapes():
    assert reason(b"\x89PNG\r\n\x1a\n") == "corrupt"
    assert reason(b"\xff\xd8\xff\xe0") == "corrupt"
    assert reason(b"GIF89a" + struct.pack("<HH", 0, 0) + bytes(10)) == "corrupt"
    assert reason(b"x") == "unknown_format"
    assert reason(encoded(quadrants())[:60] + b"\0" * 40) in ("corrupt", "truncated")


@pytest.mark.parametrize("bug", [AssertionError, TypeError, NameError])
def test_a_bug_of_ours_is_not_taken_for_a_bad_picture(monkeypatch, bug):
    def broken(image):
        raise bug("a bug")

    ours = type(broken)(broken.__code__, {"__name__": "vitrail.images.pillow"}, closure=broken.__closure__)
    monkeypatch.setattr(decoding.pillow, "moves", ours)
    with pytest.raises(bug):
        decode(encoded(quadrants()))


def test_running_out_of_memory_is_one_bad_picture(monkeypatch):
    def full(*_, **__):
        raise MemoryError

    monkeypatch.setattr(decoding.pillow, "load_pixels", full)
    assert reason(encoded(quadrants())) == "out_of_memory"


@pytest.mark.parametrize("factor", [2, 4, 8])
def test_a_scaled_jpeg_keeps_its_margin_its_size_and_nearly_its_pixels(factor):
    smooth = quadrants(4, 4).resize((1600, 1200), Image.Resampling.BICUBIC)
    data, at_least = encoded(smooth, "JPEG", quality=95), (1200 // factor, 1600 // factor)
    exact, scaled = decode(data, at_least=at_least), decode(data, at_least=at_least, options=Decoding(scaled=True))
    assert exact.pixels.size == (1600, 1200)
    assert exact.notes == ()
    assert scaled.pixels.size == (1600 // factor, 1200 // factor)
    assert (scaled.width, scaled.height, scaled.notes) == (1600, 1200, ("scaled",))
    small = exact.pixels.resize(scaled.pixels.size, Image.Resampling.BOX)
    assert np.abs(np.asarray(small).astype(int) - np.asarray(scaled.pixels)).max() <= 3


def test_only_fractions_that_divide_both_sides_are_used_and_turned_pictures_count_turned():
    exif = Image.Exif()
    exif[0x0112] = 6
    odd = decode(encoded(quadrants(1602, 1202), "JPEG"), at_least=100, options=Decoding(scaled=True))
    turned = decode(
        encoded(quadrants(1600, 800), "JPEG", exif=exif), at_least=(800, 400), options=Decoding(scaled=True)
    )
    assert odd.pixels.size == (801, 601)
    assert turned.pixels.size == (400, 800)
    assert (turned.width, turned.height) == (800, 1600)


def test_sizes_from_one_pixel_to_a_thread_ten_thousand_long():
    for size in ((1, 1), (1, 10_000), (10_000, 1)):
        assert decode(encoded(Image.new("RGB", size, "red"))).pixels.size == size


def test_decoding_changes_no_file_and_no_time_stamp(tmp_path):
    path = tmp_path / "a.jpg"
    path.write_bytes(encoded(quadrants(), "JPEG"))
    os.utime(path, ns=(1, 1))
    before = (path.read_bytes(), path.stat().st_mtime_ns)
    decode(path)
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before


def test_decoding_starts_fast():
    """No torch, and none of Pillow's other forty readers."""
    script = "import vitrail.images.decode, sys; print([m for m in sys.modules if 'torch' in m or 'PIL.Eps' in m])"
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert output.stdout.strip() == "[]"


def test_pillows_remarks_do_not_decide_about_a_picture():
    exif = encoded(quadrants(), "JPEG", exif=b"Exif\0\0II*\0\x08\0\0\0\xff\xff")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert decode(exif).width == 48


def test_sixteen_bit_grey_reaches_a_colour_model_by_its_full_range():
    ramp = np.linspace(0, 65535, 256).round().astype(np.uint16).reshape(16, 16)
    array = pixels(png16(ramp))
    assert np.array_equal(array[..., 0].ravel(), np.arange(256))
    assert array.shape == (16, 16, 3)


def test_a_phones_jpeg_with_a_second_picture_behind_the_first_is_no_moving_picture():
    data = encoded(quadrants(), "MPO", save_all=True, append_images=[quadrants(24, 16)], quality=95)
    picture = decode(data)
    assert (picture.format, picture.width, picture.notes) == ("MPO", 48, ())
    assert np.abs(corners(np.asarray(picture.pixels)) - corners(np.asarray(quadrants()))).max() <= 6
