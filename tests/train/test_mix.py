"""Do labels follow the pixels when pictures are mixed, and do the shares come as the papers draw them?"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from oracle.peers import peer

from vitrail.train.config import TrainConfig
from vitrail.train.mix import Mixing, mixed, mixing

SIZE = (24, 32)
IMAGES = torch.arange(6.0)[:, None, None, None].expand(6, 3, *SIZE)  # picture i is full of i
TARGETS = torch.eye(6)


@pytest.mark.parametrize(
    "config", [TrainConfig(mixup=0.4), TrainConfig(cutmix=1.0), TrainConfig(mixup=0.4, cutmix=1.0)]
)
def test_a_label_weighs_what_is_seen_of_its_picture(config: TrainConfig) -> None:
    for step in range(60):
        images, targets = mixed(IMAGES, TARGETS, mixing(config, step, SIZE))
        assert torch.allclose(targets.sum(1), torch.ones(6))
        shown = images.mean(dim=(1, 2, 3))  # of the numbers of both pictures, weighted by what is seen of them
        torch.testing.assert_close(shown, targets @ torch.arange(6.0), rtol=1e-5, atol=1e-5)


def test_a_box_is_cut_out_of_the_other_picture_and_the_rest_is_untouched() -> None:
    images, _ = mixed(IMAGES, TARGETS, Mixing(0.5, (4, 6, 12, 20)))
    inside = torch.zeros(SIZE, dtype=torch.bool)
    inside[4:12, 6:20] = True
    assert (images[1][:, inside] == 4).all()
    assert (images[1][:, ~inside] == 1).all()


def test_what_is_drawn_depends_on_seed_and_step_alone() -> None:
    config = TrainConfig(mixup=0.4, cutmix=1.0, mix_chance=0.7)
    first = [mixing(config, step, SIZE) for step in range(50)]
    assert first == [mixing(config, step, SIZE) for step in range(50)]
    assert first != [mixing(TrainConfig(mixup=0.4, cutmix=1.0, mix_chance=0.7, seed=1), s, SIZE) for s in range(50)]
    kinds = [None if how is None else how.box is not None for how in (mixing(config, s, SIZE) for s in range(1000))]
    assert 250 < kinds.count(None) < 350
    assert 300 < kinds.count(True) < 400
    assert mixing(TrainConfig(mixup=0.4, mix_chance=0.0), 0, SIZE) is None


@pytest.mark.upstream
def test_shares_are_distributed_as_timms() -> None:
    theirs = peer("timm.data.mixup").Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, label_smoothing=0.0, num_classes=6)
    np.random.seed(0)  # noqa: NPY002 (timm draws from it)
    shares = [theirs._params_per_batch() for _ in range(3000)]
    config = TrainConfig(mixup=0.8, cutmix=1.0)
    ours = [mixing(config, step, (224, 224)) for step in range(3000)]
    mixups = sorted(how.share for how in ours if how is not None and how.box is None)
    expected = sorted(share for share, cut in shares if not cut)
    for level in (0.1, 0.3, 0.5, 0.7, 0.9):
        assert np.quantile(mixups, level) == pytest.approx(np.quantile(expected, level), abs=0.08)
    assert abs(len(mixups) - len(expected)) < 150
    rand_bbox = peer("timm.data.mixup").rand_bbox
    kept = []
    for share, cut in shares:
        if cut:
            top, bottom, left, right = rand_bbox((1, 3, 224, 224), share)
            kept.append(1 - (bottom - top) * (right - left) / 224**2)
    own = [how.share for how in ours if how is not None and how.box is not None]
    for level in (0.1, 0.3, 0.5, 0.7, 0.9):
        assert np.quantile(own, level) == pytest.approx(np.quantile(kept, level), abs=0.08)
