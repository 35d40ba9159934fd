"""Is the evaluation transform the documented arithmetic? (test_transform_parity.py compares it with the peers.)"""

import hashlib
import time

import numpy as np
import pytest
from images.drawn import encoded, quadrants
from oracle.peers import peer
from PIL import Image

from vitrail.config import Preprocess
from vitrail.images.decode import Decoding
from vitrail.images.reading import BadPicture
from vitrail.images.transforms import FILTERS, affine, crop_offset, normalise, read, resized_size, transform

# Of `scene()`; the first is a squash to 64 x 48, the second the shorter side to 71 and a centre crop of 64 x 48.
# The upstream test below takes the same from torchvision.
FINGERPRINTS = {
    "nearest": ("2f5cbd853ed1", "4211d898105c"),
    "bilinear": ("46c829b1c6bf", "53117440c05b"),
    "bicubic": ("9676a49fa800", "0e96905fd86e"),
    "lanczos": ("d810aad5de73", "c140420f71ac"),
    "box": ("0635381cb445", "2a35660785f9"),
    "hamming": ("54a071162151", "d48c86895ec2"),
}


def scene():
    """A picture from integers alone, with edges, ramps and noise."""
    rows, cols = np.mgrid[0:97, 0:150]
    noise = (rows * 7919 + cols * 104729 + rows * cols * 31) % 251
    edges = ((rows // 9 + cols // 13) % 2) * 255
    ramp = (rows + cols) * 255 // (96 + 149)
    return Image.fromarray(np.stack([noise, edges, ramp], axis=2).astype(np.uint8))


def plans(interpolation):
    squash = Preprocess(size=(64, 48), resize=(64, 48), interpolation=interpolation)
    return squash, Preprocess(size=(64, 48), resize=71, interpolation=interpolation, center_crop=True)


def fingerprint(array):
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:12]


@pytest.mark.parametrize("interpolation", FILTERS)
def test_the_pixels_are_those_that_torchvision_gave(interpolation):
    given = tuple(fingerprint(transform(scene(), plan)) for plan in plans(interpolation))
    assert given == FINGERPRINTS[interpolation]


@pytest.mark.upstream
@pytest.mark.parametrize("interpolation", FILTERS)
def test_torchvision_still_gives_them(interpolation):
    peer("torchvision")
    transforms = peer("torchvision.transforms")
    mode = transforms.InterpolationMode(interpolation)
    squashed = transforms.Resize((64, 48), mode)(scene())
    cropped = transforms.CenterCrop((64, 48))(transforms.Resize(71, mode)(scene()))
    assert (fingerprint(squashed), fingerprint(cropped)) == FINGERPRINTS[interpolation]


def test_the_longer_side_is_rounded_down():
    assert resized_size(500, 375, 256) == (341, 256)
    assert resized_size(375, 500, 256) == (256, 341)
    assert resized_size(300, 300, 256) == (256, 256)
    assert resized_size(500, 375, (224, 112)) == (112, 224)
    assert resized_size(500, 375, None) == (500, 375)


def test_the_centre_of_an_odd_difference_is_where_each_library_has_it():
    assert [crop_offset(224 + odd, 224, "torchvision") for odd in (1, 3, 5, 7)] == [0, 2, 2, 4]  # halves to even
    assert [crop_offset(224 + odd, 224, "hf") for odd in (1, 3, 5, 7)] == [0, 1, 2, 3]
    assert crop_offset(219, 224, "torchvision") == -2
    assert crop_offset(219, 224, "hf") == -3


def test_a_picture_smaller_than_the_crop_lies_on_black():
    plan = Preprocess(size=(5, 5), resize=None, center_crop=True)
    array = transform(Image.new("RGB", (2, 2), (9, 8, 7)), plan)
    assert array[1:3, 1:3].tolist() == [[[9, 8, 7]] * 2] * 2
    assert array.sum() == 4 * 24


def test_every_channel_count_is_resized_like_its_channels():
    values = np.random.default_rng(0).integers(0, 256, (30, 40, 5), np.uint8)
    together = transform(values, plan := Preprocess(size=(8, 9), resize=(8, 9), interpolation="bicubic"))
    for channel in range(5):
        assert np.array_equal(
            together[..., channel : channel + 1], transform(Image.fromarray(values[..., channel]), plan)
        )
    colours = Image.fromarray(values[..., :3])
    assert np.array_equal(transform(colours, plan), together[..., :3])


def test_overshoot_of_deep_pictures_is_cut_and_does_not_wrap_round():
    step = np.zeros((32, 32, 1), np.uint16)
    step[:, 16:] = 65535
    plan = Preprocess(size=(64, 64), resize=(64, 64), interpolation="lanczos", mean=(0.5,), std=(0.5,))
    fine, coarse = transform(step, plan, depth=16), transform((step >> 8).astype(np.uint8), plan)
    assert np.abs(fine / 257 - coarse).max() <= 1


def test_the_numbers_a_model_sees_are_pixels_by_255_less_mean_by_std():
    plan = Preprocess(size=(2, 2), mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    batch = np.random.default_rng(0).integers(0, 256, (3, 2, 2, 3), np.uint8)
    images = normalise(batch, plan)
    expected = (batch / 255 - np.array(plan.mean)) / np.array(plan.std)
    assert np.abs(images.numpy() - expected.transpose(0, 3, 1, 2)).max() < 1e-6
    assert images.is_contiguous()
    scale, shift = affine(plan)
    assert np.abs(batch * scale + shift - expected).max() < 1e-6


def test_a_read_only_batch_is_no_problem():
    batch = np.zeros((1, 2, 2, 3), np.uint8)
    batch.flags.writeable = False
    assert normalise(batch, Preprocess(size=(2, 2))).eq(-1).all()
    assert batch.sum() == 0


def test_a_size_that_the_model_cannot_take_is_refused():
    for plan in (Preprocess(resize=224), Preprocess(resize=None)):
        with pytest.raises(BadPicture, match="does not crop") as caught:
            transform(quadrants(300, 200), plan)
        assert caught.value.reason == "wrong_size"
    assert transform(quadrants(300, 300), Preprocess(resize=224)).shape == (224, 224, 3)
    assert transform(quadrants(224, 224), Preprocess(resize=None)).shape == (224, 224, 3)


def test_a_thread_of_ten_thousand_pixels_takes_neither_gigabytes_nor_seconds():
    plan = Preprocess(size=(224, 224), resize=256, center_crop=True)
    line = Image.fromarray(np.arange(10_000, dtype=np.uint32).view(np.uint8).reshape(10_000, 1, 4)[..., :3].copy())
    begun = time.process_time()
    for image in (line, line.transpose(Image.Transpose.TRANSPOSE)):
        assert transform(image, plan).shape == (224, 224, 3)
    assert time.process_time() - begun < 1


def test_resizing_only_the_crop_is_within_two_levels(monkeypatch):
    from vitrail.images import transforms

    for interpolation in ("bilinear", "bicubic", "lanczos"):
        for image in (scene(), scene().transpose(Image.Transpose.TRANSPOSE), quadrants(30, 400)):
            plan = plans(interpolation)[1]
            whole = transform(image, plan).astype(int)
            monkeypatch.setattr(transforms, "LARGEST_RESIZED", 0)
            assert np.abs(transform(image, plan) - whole).max() <= 2
            monkeypatch.undo()


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic", "lanczos"])
def test_a_jpeg_decoded_at_a_fraction_differs_by_less_than_the_guide_says(interpolation):
    smooth = scene().resize((1600, 1200), Image.Resampling.BICUBIC)
    data, plan = (
        encoded(smooth, "JPEG", quality=90),
        Preprocess(size=(112, 112), resize=(112, 112), interpolation=interpolation),
    )
    exact, _ = read(data, plan)
    scaled, picture = read(data, plan, options=Decoding(scaled=True))
    difference = np.abs(exact.astype(int) - scaled)
    assert picture.notes == ("scaled",)
    assert (picture.width, picture.height) == (1600, 1200)
    assert 0 < difference.mean() <= 0.5
    assert difference.max() <= 7


def test_filters_that_a_fraction_would_change_more_decode_whole():
    data = encoded(quadrants(1600, 1200), "JPEG")
    for interpolation in ("nearest", "box", "hamming"):
        plan = Preprocess(size=(64, 64), resize=(64, 64), interpolation=interpolation)
        assert read(data, plan, options=Decoding(scaled=True))[1].notes == ()
    small = Preprocess(size=(224, 224), resize=256, center_crop=True)
    assert read(encoded(quadrants(500, 376), "JPEG"), small, options=Decoding(scaled=True))[1].notes == ()
