"""Is every change of a training picture a function of its key alone, and within what was asked for?"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from PIL import Image
from train.pictures import photo

from vitrail.config import Preprocess
from vitrail.errors import ConfigError
from vitrail.images.augment import Augment, augmented, crop_box, erase_box, erased, shifted
from vitrail.images.dice import Dice
from vitrail.images.policies import RANDAUGMENT, RANGES, operations, perform

HALF = Preprocess(size=(24, 32), resize=(24, 32))
STRONG = Augment(policy="randaugment", brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1, grey=0.2, erase=0.7)


# Keys --------------------------------------------------------------------------------------------------------------


def test_a_picture_depends_on_its_key_and_on_nothing_else() -> None:
    keys = [(7, epoch, index) for epoch in range(2) for index in range(8)]
    first = {key: augmented(photo(), HALF, STRONG, Dice(key)) for key in keys}
    shuffled = random.Random(0).sample(keys, len(keys))
    again = {key: augmented(photo(), HALF, STRONG, Dice(key)) for key in shuffled}
    assert all(np.array_equal(first[key], again[key]) for key in keys)
    assert len({picture.tobytes() for picture in first.values()}) == len(keys)


def test_random_numbers_are_these_for_ever() -> None:
    dice = Dice((1, 2, 3))
    assert dice.bits("crop") == 6634264376342966890
    assert dice.uniform("crop", 2, 4) == 2.7192883849674234
    assert (dice.below("crop", 10), dice.sign("crop")) == (3, 1)
    assert dice.beta("mix", 0.8) == 0.6338261322070362


def test_numbers_spread_evenly_and_different_names_have_nothing_to_do_with_each_other() -> None:
    draws = np.array([[Dice((0, 0, index)).uniform(name) for name in ("a", "b")] for index in range(4000)])
    assert np.abs(draws.mean(0) - 0.5).max() < 0.02
    assert np.abs(draws.var(0) - 1 / 12).max() < 0.005
    assert abs(np.corrcoef(draws.T)[0, 1]) < 0.05
    assert np.bincount([Dice((1, index)).below("n", 5) for index in range(5000)]).min() > 900


# Crops -------------------------------------------------------------------------------------------------------------


def test_crops_keep_the_asked_area_and_shape_and_stay_inside() -> None:
    augment = Augment(crop_scale=(0.2, 0.9), crop_ratio=(0.5, 2.0))
    areas = []
    for index in range(500):
        left, top, right, bottom = crop_box((100, 150), augment, Dice((index,)))
        assert 0 <= left < right <= 150
        assert 0 <= top < bottom <= 100
        areas.append((right - left) * (bottom - top) / 15_000)
        assert 0.48 < (right - left) / (bottom - top) < 2.1
    assert 0.19 < min(areas) < 0.25
    assert 0.8 < max(areas) < 0.91
    assert abs(np.mean(areas) - 0.5) < 0.06


def test_a_picture_too_long_for_any_allowed_shape_is_cropped_at_its_centre() -> None:
    left, top, right, bottom = crop_box((1000, 10), Augment(crop_scale=(0.9, 1.0)), Dice((0,)))
    assert (left, right) == (0, 10)
    assert (abs(top + bottom - 1000) <= 1, bottom - top) == (True, 13)


def test_the_whole_picture_can_be_asked_for() -> None:
    plain = Augment(crop_scale=(1.0, 1.0), flip=0.0)
    expected = np.asarray(photo().resize((32, 24), Image.Resampling.BILINEAR))
    assert np.array_equal(augmented(photo(), HALF, plain, Dice((5,))), expected)


def test_half_of_the_pictures_are_mirrored() -> None:
    plain, mirrored = Augment(crop_scale=(1.0, 1.0), flip=0.0), Augment(crop_scale=(1.0, 1.0))
    straight = augmented(photo(), HALF, plain, Dice((0,)))
    results = [augmented(photo(), HALF, mirrored, Dice((index,))) for index in range(200)]
    flips = sum(np.array_equal(result, straight[:, ::-1]) for result in results)
    assert flips + sum(np.array_equal(result, straight) for result in results) == 200
    assert 75 < flips < 125


def test_a_shift_moves_the_picture_by_whole_pixels_and_mirrors_the_edge() -> None:
    array = np.asarray(photo(32, 24))
    offsets = set()
    for index in range(60):
        moved = shifted(photo(32, 24), HALF, Augment(shift=2), Dice((index,)))
        padded = np.pad(array, ((2, 2), (2, 2), (0, 0)), mode="reflect")
        offsets |= {
            (top, left)
            for top in range(5)
            for left in range(5)
            if np.array_equal(padded[top : top + 24, left : left + 32], moved)
        }
    assert len(offsets) > 15


# Many kinds of pictures ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("channels", "dtype"), [(1, np.uint8), (5, np.uint8), (2, np.uint16)])
def test_pictures_of_any_depth_and_channels_are_cropped_flipped_and_erased(channels: int, dtype: Any) -> None:
    array = np.random.RandomState(0).randint(0, np.iinfo(dtype).max, (40, 50, channels)).astype(dtype)
    half = Preprocess(size=(24, 32), resize=(24, 32), mean=(0.5,) * channels, std=(0.5,) * channels)
    result = augmented(array, half, Augment(erase=1.0, erase_with="noise"), Dice((3,)))
    assert (result.shape, result.dtype) == ((24, 32, channels), dtype)


def test_colour_changes_of_pictures_that_have_no_colour_are_refused_with_a_way_out() -> None:
    array = np.zeros((40, 50, 5), np.uint8)
    five = Preprocess(size=(24, 32), resize=(24, 32), mean=(0.5,) * 5, std=(0.5,) * 5)
    with pytest.raises(ConfigError, match=r"5 channels.*\n.*\n.*augment\.policy"):
        augmented(array, five, Augment(policy="trivial"), Dice((3,)))


def test_every_operation_works_on_grey_pictures() -> None:
    for name in RANDAUGMENT:
        strength = RANGES[name](0.5, (90, 60)) if name in RANGES else 0.0
        assert perform(photo().convert("L"), name, strength, (128,)).mode == "L"


def test_a_strength_out_of_range_is_refused() -> None:
    for wrong in ({"flip": 1.5}, {"hue": 0.6}, {"magnitude": 31}, {"crop_scale": (0.5, 0.2)}, {"crop_scale": (0, 1)}):
        with pytest.raises(ConfigError):
            Augment(**wrong)  # type: ignore[arg-type]


# Policies ----------------------------------------------------------------------------------------------------------


def test_randaugment_takes_every_operation_equally_often_in_both_directions() -> None:
    drawn = [op for i in range(3000) for op in operations("randaugment", 2, 15, Dice((i,)), (32, 32))]
    counts = {name: [strength for other, strength in drawn if other == name] for name in RANDAUGMENT}
    assert min(map(len, counts.values())) > 6000 / 14 * 0.8
    assert {abs(strength) for strength in counts["shear_x"]} == {0.15}
    assert 0.4 < sum(strength > 0 for strength in counts["rotate"]) / len(counts["rotate"]) < 0.6
    assert set(counts["solarize"]) == {127.5}


def test_trivial_augment_takes_one_operation_of_any_magnitude() -> None:
    drawn = [operations("trivial", 2, 9, Dice((i,)), (32, 32)) for i in range(3000)]
    assert {len(ops) for ops in drawn} == {1}
    turns = {abs(round(strength / 4.5)) for ((name, strength),) in drawn if name == "rotate"}
    assert turns == set(range(31))


def test_three_augment_is_grey_solarized_or_blurred() -> None:
    drawn = [operations("three", 2, 9, Dice((i,)), (32, 32))[0] for i in range(300)]
    assert {name for name, _ in drawn} == {"grey", "solarize", "blur"}
    assert all(0.1 <= strength <= 2 for name, strength in drawn if name == "blur")


# Erasing -----------------------------------------------------------------------------------------------------------


def test_an_erased_rectangle_is_the_mean_colour_and_the_rest_is_untouched() -> None:
    array = np.asarray(photo(32, 24))
    preprocess = Preprocess(size=(24, 32), resize=(24, 32), mean=(0.2, 0.4, 0.6))
    for index in range(50):
        dice = Dice((index,))
        result, box = erased(array, preprocess, Augment(), dice), erase_box((24, 32), dice)
        assert box is not None
        left, top, right, bottom = box
        assert (result[top:bottom, left:right] == [51, 102, 153]).all()
        untouched = np.ones((24, 32), bool)
        untouched[top:bottom, left:right] = False
        assert np.array_equal(result[untouched], array[untouched])
        assert 0.015 < (~untouched).mean() < 0.36
