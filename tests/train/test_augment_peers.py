"""Is every change of a training picture what torchvision and timm compute?"""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from oracle.peers import peer
from train.pictures import photo, pixels

from vitrail.config import Preprocess
from vitrail.images.augment import Augment, augmented, crop_box, erase_box
from vitrail.images.dice import Dice
from vitrail.images.policies import RANDAUGMENT, RANGES, WIDE_RANGES, perform

TORCHVISION = {
    "identity": "Identity",
    "shear_x": "ShearX",
    "shear_y": "ShearY",
    "translate_x": "TranslateX",
    "translate_y": "TranslateY",
    "rotate": "Rotate",
    "brightness": "Brightness",
    "saturation": "Color",
    "contrast": "Contrast",
    "sharpness": "Sharpness",
    "posterize": "Posterize",
    "solarize": "Solarize",
    "autocontrast": "AutoContrast",
    "equalize": "Equalize",
}


@pytest.mark.upstream
@pytest.mark.parametrize("name", RANDAUGMENT)
def test_every_operation_equals_torchvisions_bit_for_bit(name: str) -> None:
    peer("torchvision")
    autoaugment = peer("torchvision.transforms.autoaugment")
    from torchvision.transforms import InterpolationMode

    for seed, (width, height) in enumerate([(90, 60), (33, 47), (64, 64)]):
        image = photo(width, height, seed)
        for magnitude in (0.0, 0.3, 0.7, 1.0):
            for ranges in (RANGES, WIDE_RANGES):
                strength = ranges[name](magnitude, image.size) if name in ranges else 0.0
                for signed in {strength, -strength} if name in TORCHVISION and name != "posterize" else {strength}:
                    if name == "solarize" and signed < 0:
                        continue
                    theirs = autoaugment._apply_op(
                        image, TORCHVISION[name], signed, InterpolationMode.NEAREST, [10, 20, 30]
                    )
                    ours = perform(image, name, signed, (10, 20, 30))
                    differ = (pixels(ours) != pixels(theirs)).any(axis=2).mean()
                    # A shear goes through an angle there: where a point falls between two pixels, they may differ.
                    assert differ <= (0.01 if name.startswith("shear") else 0), (magnitude, signed)


@pytest.mark.upstream
def test_the_strengths_of_both_policies_are_torchvisions() -> None:
    peer("torchvision")
    autoaugment = peer("torchvision.transforms.autoaugment")
    randaugment = autoaugment.RandAugment()._augmentation_space(31, (60, 90))
    trivial = autoaugment.TrivialAugmentWide()._augmentation_space(31)
    for theirs, ours in ((randaugment, RANGES), (trivial, WIDE_RANGES)):
        for name in ours:
            strengths, _ = theirs[TORCHVISION[name]]
            expected = [float(s) for s in strengths]
            found = [ours[name](level / 30, (90, 60)) for level in range(31)]
            assert found == pytest.approx(expected, rel=1e-5, abs=1e-4), name


@pytest.mark.upstream
def test_three_augment_is_timms_3a_bit_for_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    policies = peer("timm.data.auto_augment")
    drawn: dict[str, tuple[float, float]] = {}

    def radius(low: float, high: float) -> float:
        drawn["range"] = (low, high)
        return 1.3

    monkeypatch.setattr(policies.random, "uniform", radius)
    theirs = {operation.name: operation for (operation,) in policies.auto_augment_policy("3a")}
    ours = {"Solarize": ("solarize", 128.0), "Desaturate": ("grey", 0.0), "GaussianBlurRand": ("blur", 1.3)}
    assert theirs.keys() == ours.keys()
    for name, (operation, strength) in ours.items():
        image = photo()
        assert np.array_equal(pixels(perform(image, operation, strength, (0, 0, 0))), pixels(theirs[name](image))), name
    assert drawn["range"] == (0.1, 2.0)


@pytest.mark.upstream
@pytest.mark.parametrize("name", ["brightness", "contrast", "saturation", "hue"])
def test_the_jitter_equals_torchvisions_bit_for_bit(name: str) -> None:
    functional = peer("torchvision.transforms.functional")
    image = photo()
    for by in (-0.45, -0.1, 0.05, 0.3, 0.5):
        theirs = getattr(functional, f"adjust_{name}")(image, by if name == "hue" else 1 + by)
        assert np.array_equal(pixels(perform(image, name, by, (0, 0, 0))), pixels(theirs)), by


@pytest.mark.upstream
def test_a_crop_of_the_same_box_equals_torchvisions_bit_for_bit() -> None:
    functional = peer("torchvision.transforms.functional")
    from torchvision.transforms import InterpolationMode

    half = Preprocess(size=(24, 32), resize=(24, 32))
    for index in range(40):
        image, dice = photo(140, 100, index), Dice((index,))
        left, top, right, bottom = crop_box((100, 140), Augment(), dice)
        theirs = functional.resized_crop(
            image, top, left, bottom - top, right - left, [24, 32], InterpolationMode.BILINEAR
        )
        assert np.array_equal(augmented(image, half, Augment(flip=0.0), dice), np.asarray(theirs))


@pytest.mark.upstream
def test_crop_boxes_are_distributed_as_torchvisions() -> None:
    transforms = peer("torchvision.transforms")
    import torch

    torch.manual_seed(0)
    theirs = [transforms.RandomResizedCrop.get_params(photo(), [0.08, 1.0], [3 / 4, 4 / 3]) for _ in range(2000)]
    ours = [crop_box((60, 90), Augment(), Dice((index,))) for index in range(2000)]
    for of_theirs, of_ours in (
        (lambda b: b[2] * b[3], lambda b: (b[2] - b[0]) * (b[3] - b[1])),  # area
        (lambda b: math.log(b[3] / b[2]), lambda b: math.log((b[2] - b[0]) / (b[3] - b[1]))),  # shape
        (lambda b: b[1], lambda b: b[0]),  # place
    ):
        quantiles = [
            np.quantile([f(b) for b in boxes], np.linspace(0.1, 0.9, 9))
            for f, boxes in ((of_theirs, theirs), (of_ours, ours))
        ]
        spread = np.ptp(quantiles[0])
        assert np.abs(quantiles[0] - quantiles[1]).max() < 0.06 * spread


@pytest.mark.upstream
def test_erased_rectangles_are_distributed_as_timms() -> None:
    erasing = peer("timm.data.random_erasing").RandomErasing(probability=1.0, device="cpu")
    import torch

    random.seed(0)
    theirs = []
    for _ in range(1500):
        image = torch.ones(1, 48, 48)
        erasing(image)
        rows, cols = (image[0] == 0).any(1).sum().item(), (image[0] == 0).any(0).sum().item()
        theirs.append((rows * cols, math.log(rows / cols)))
    boxes = [erase_box((48, 48), Dice((index,))) for index in range(1500)]
    ours = [((b - t) * (r - le), math.log((b - t) / (r - le))) for le, t, r, b in (box for box in boxes if box)]
    for column in range(2):
        quantiles = [np.quantile([row[column] for row in rows], np.linspace(0.1, 0.9, 9)) for rows in (theirs, ours)]
        assert np.abs(quantiles[0] - quantiles[1]).max() < 0.07 * np.ptp(quantiles[0])
