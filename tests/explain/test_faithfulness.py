"""Do the measures of trust tell good maps from bad ones, and are they computed as said?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from oracle.tiny import random_images, random_model, tiny_config, tiny_hybrid
from scipy import sparse, stats
from scipy.ndimage import gaussian_filter
from scipy.sparse.linalg import spsolve

from vitrail.explain.attention import rollout
from vitrail.explain.explain import explain
from vitrail.explain.faithfulness import faithfulness, random_maps, ranked
from vitrail.explain.impute import NOISE, imputed
from vitrail.explain.perturb import blurred, occlusion
from vitrail.explain.relevance import relevance
from vitrail.explain.sanity import cascade, mean_ranks, sanity, spearman, wholly_shuffled


def solved_by_scipy(picture: np.ndarray, hole: np.ndarray) -> np.ndarray:
    """ROAD's system, written as a sparse matrix: each hole the weighted mean of its neighbours."""
    rows, cols = hole.shape
    places = {place: i for i, place in enumerate(zip(*np.nonzero(hole), strict=True))}
    matrix, right = sparse.lil_matrix((len(places), len(places))), np.zeros(len(places))
    for (row, col), i in places.items():
        for down in (-1, 0, 1):
            for across in (-1, 0, 1):
                near = (row + down, col + across)
                if (down, across) == (0, 0) or not (0 <= near[0] < rows and 0 <= near[1] < cols):
                    continue
                weight = 1 / 6 if 0 in (down, across) else 1 / 12
                matrix[i, i] += weight
                if near in places:
                    matrix[i, places[near]] -= weight
                else:
                    right[i] += weight * picture[near]
    filled = picture.copy()
    filled[hole] = spsolve(matrix.tocsr(), right)
    return filled


@pytest.mark.parametrize("share", [0.1, 0.5, 0.95])
def test_imputation_solves_the_system_scipy_solves(share: float) -> None:
    draw = np.random.RandomState(0)
    picture = gaussian_filter(draw.standard_normal((36, 48)), 2) * 4
    hole = np.kron(draw.rand(9, 12) < share, np.ones((4, 4), bool))
    images = torch.from_numpy(np.stack([picture, picture.T[:36, :36].repeat(2, 1)[:, :48]]))[None].float()
    ours = imputed(images, torch.from_numpy(hole)[None], torch.Generator().manual_seed(0))
    for channel in range(2):
        theirs = solved_by_scipy(images[0, channel].double().numpy(), hole)
        difference = ours[0, channel].numpy() - theirs
        assert not difference[~hole].any()
        assert abs(difference[hole].std() - NOISE) < 0.4 * NOISE  # what is left is the noise that was added
        assert np.abs(difference).max() < 6 * NOISE


def test_a_picture_with_everything_or_nothing_covered_is_imputed_without_complaint() -> None:
    images = torch.randn(2, 3, 13, 9)
    nothing = torch.zeros(2, 13, 9, dtype=torch.bool)
    assert torch.equal(imputed(images, nothing), images)
    assert imputed(images, ~nothing).isfinite().all()
    assert imputed(images, ~nothing).abs().max() < 0.1  # the mean colour and noise


def test_batched_holes_do_not_mix() -> None:
    images = torch.randn(2, 1, 12, 12)
    holes = torch.zeros(2, 12, 12, dtype=torch.bool)
    holes[0, 2:6, 3:9], holes[1, 5:12] = True, True
    together = imputed(images, holes, torch.Generator().manual_seed(0))
    for i in range(2):
        alone = imputed(images[i : i + 1], holes[i : i + 1], torch.Generator().manual_seed(0))
        assert (alone - together[i : i + 1]).abs().max() < 8 * NOISE


def test_the_blur_is_gaussian_and_reflects_at_the_edges() -> None:
    images = torch.randn(1, 2, 40, 60, dtype=torch.float64)
    theirs = gaussian_filter(images[0].numpy(), (0, 2, 3), mode="mirror", truncate=3)
    assert np.allclose(blurred(images)[0], theirs, atol=1e-10)


def test_curves_are_areas_of_confidence_while_patches_go() -> None:
    config = tiny_config(num_register_tokens=1)
    model, images = random_model(config), random_images(config)[:1]
    importance = torch.tensor([[[5.0, 1.0], [3.0, 4.0], [0.0, 2.0]]])
    (scores,) = faithfulness(model, images, importance, target=2, steps=6)
    order = [(0, 0), (1, 1), (1, 0), (2, 1), (0, 1), (2, 0)]
    gone, back = images.clone(), blurred(images)
    deletion, insertion = [model(gone).softmax(1)[0, 2].item()], [model(back).softmax(1)[0, 2].item()]
    for row, col in order:
        cell = (..., slice(4 * row, 4 * row + 4), slice(4 * col, 4 * col + 4))
        gone[cell], back[cell] = 0.0, images[cell]
        deletion.append(model(gone).softmax(1)[0, 2].item())
        insertion.append(model(back).softmax(1)[0, 2].item())
    assert scores.deletion == pytest.approx(np.trapezoid(deletion, dx=1 / 6), abs=1e-6)
    assert scores.insertion == pytest.approx(np.trapezoid(insertion, dx=1 / 6), abs=1e-6)
    assert -1 <= scores.road <= 1


def test_good_maps_score_better_than_random_ones_and_those_better_than_maps_turned_round(
    reader: Any, digits: Any
) -> None:
    images = digits[0][1400:1412]

    def mean(maps: torch.Tensor) -> np.ndarray:
        scores = faithfulness(reader, images, maps, steps=8)
        return np.array([[-one.deletion, one.insertion, one.road, one.total] for one in scores]).mean(axis=0)

    good, chance = occlusion(reader, images, fill=-1.0), random_maps(12, (4, 4))
    margins = (0.0, 0.0, 0.3, 0.15)  # grey on black is a stroke to this model: only ROAD hides what it covers
    assert (mean(good) - mean(chance) > margins).all()
    assert (mean(chance) > mean(-good)).all()
    assert mean(relevance(reader, images))[3] > mean(chance)[3]


def test_maps_per_pixel_are_summed_over_patches() -> None:
    model = random_model(tiny_hybrid())
    images = random_images(model.config)
    pixels = torch.randn(2, 37, 30, generator=torch.Generator().manual_seed(0))
    cells = torch.stack(
        [
            torch.stack([torch.stack([block.sum() for block in rows.split(8, 1)]) for rows in one.split(8, 0)])
            for one in pixels
        ]
    )
    by_pixel, by_cell = (faithfulness(model, images, maps, steps=4) for maps in (pixels, cells))
    for one, other in zip(by_pixel, by_cell, strict=True):
        assert one.insertion == pytest.approx(other.insertion, abs=1e-6)


def test_equal_patches_go_in_a_random_order_and_the_same_one_every_time() -> None:
    flat = torch.zeros(6, 6)
    first, again, other = ranked(flat, 0), ranked(flat, 0), ranked(flat, 1)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert first.flatten().sort().values.tolist() == list(range(36))
    assert abs(stats.spearmanr(first.flatten(), range(36)).statistic) < 0.4
    peaks = flat.clone()
    peaks[2, 3], peaks[5, 5] = 2.0, 1.0
    assert (ranked(peaks, 0)[2, 3], ranked(peaks, 0)[5, 5]) == (0, 1)


# Sanity ------------------------------------------------------------------------------------------------------------


def test_rank_correlation_is_scipys_with_ties() -> None:
    draw = np.random.RandomState(0)
    a, b = draw.randint(0, 5, (4, 30)).astype(float), draw.standard_normal((4, 30))
    ours = spearman(torch.from_numpy(a), torch.from_numpy(b))
    assert np.allclose(ours, [stats.spearmanr(x, y).statistic for x, y in zip(a, b, strict=True)])
    assert np.allclose(mean_ranks(torch.from_numpy(a[0])), stats.rankdata(a[0]) - 1)
    assert spearman(torch.zeros(1, 5), torch.rand(1, 5)).item() == 0


def test_shuffling_goes_from_the_head_down_and_keeps_every_value() -> None:
    model = random_model(tiny_config(num_hidden_layers=4))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    changed = []
    for stage, shuffled in cascade(model, stages=2, seed=0):
        state = shuffled.state_dict()
        changed.append(
            (stage, {name.split(".weight")[0] for name in state if not torch.equal(state[name], before[name])})
        )
        assert all(
            torch.equal(state[name].flatten().sort().values, before[name].flatten().sort().values) for name in state
        )
    assert [stage for stage, _ in changed] == ["head", "blocks from 2 up", "blocks from 0 up", "everything"]
    assert "head.classifier" in changed[0][1]
    assert not any(name.startswith("encoder.blocks") for name in changed[0][1])
    assert {"encoder.blocks.3.mlp.fc1", "encoder.blocks.2.attn.qkv"} <= changed[1][1]
    assert not any(name.startswith("encoder.blocks.1") for name in changed[1][1])
    assert "stem.proj" in changed[3][1]
    assert "stem.proj" not in changed[2][1]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())  # the model given


def test_a_map_that_only_sees_the_picture_is_caught_and_one_that_sees_the_model_is_not(
    reader: Any, digits: Any
) -> None:
    images = digits[0][1400:1408]
    brightness = sanity(reader, images, lambda model, some: some.mean(1).unfold(1, 4, 4).unfold(2, 4, 4).mean((3, 4)))
    assert torch.allclose(brightness.agreement, torch.ones((), dtype=torch.float64))
    assert not brightness.depends_on_the_model
    honest = sanity(reader, images, relevance)
    assert honest.depends_on_the_model
    assert honest.stages[0] == "head"
    blind = sanity(reader, images, rollout, stages=1)  # reads no class: the head may be shuffled at will
    assert torch.allclose(blind.agreement[0], torch.ones((), dtype=torch.float64))


def test_scores_come_with_those_of_a_random_order_and_of_a_shuffled_models_map(reader: Any, digits: Any) -> None:
    images = digits[0][1400:1403]
    for one in explain(reader, images, ["relevance", "norms"], scores=True, batch_size=2):
        assert one.chance is not None
        assert one.views["norms"].scores is None  # a length is no importance
        scores, agreement = one.views["relevance"].scores, one.views["relevance"].agreement
        assert scores is not None
        assert agreement is not None
        assert scores.total > one.chance.total
        assert abs(agreement) < 0.9
        assert abs(one.chance.road) < 0.5
    whole = wholly_shuffled(reader)
    assert not any(torch.equal(a, b) for a, b in zip(reader.parameters(), whole.parameters(), strict=True) if a.std())
