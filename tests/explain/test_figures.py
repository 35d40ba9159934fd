"""Are the paper's figures drawn from the right numbers?"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import oracle_numpy
import pytest
import torch
from click.testing import CliRunner
from eager import whole_attention
from oracle.tiny import random_images, random_model, tiny_config, tiny_hybrid
from PIL import Image

from vitrail.cli.figures import command
from vitrail.config import ViTConfig
from vitrail.errors import UsageError
from vitrail.explain.attention import rollout
from vitrail.explain.figures import figures
from vitrail.explain.paper import attention_distances, filters, mean_distances, position_similarity
from vitrail.explain.plots import grid_of_grids, spotlit, tiles
from vitrail.model.tokens import sincos_table

KINDS: dict[str, ViTConfig] = {
    "plain": tiny_config(image_size=(16, 12)),
    "registers": tiny_config(num_register_tokens=3),
    "long patches": tiny_config(patch_size=(4, 2)),
    "hybrid": tiny_hybrid(),
    "pruned": tiny_config(kept_heads=((0, 3), ())),
    "no class token": tiny_config(pooling="mean", class_token=False),
}


@pytest.mark.parametrize("config", KINDS.values(), ids=KINDS)
def test_attention_distance_drops_the_prefix_renormalises_and_measures_pixels(config: ViTConfig) -> None:
    model, images = random_model(config).double(), random_images(config, batch=3)[:2].double()
    ours = attention_distances(model, images)
    assert ours.shape == (2, 2, 4)
    for layer, weights in enumerate(whole_attention(model, images)):
        heads = list(config.heads_in(layer))
        for image in range(2):
            theirs = oracle_numpy.attention_distance(weights[image], config.prefix_tokens, config.grid, config.stride)
            assert np.allclose(ours[image, layer, heads], theirs, atol=1e-5)
        assert ours[:, layer].isnan().sum() == 2 * (4 - len(heads))


def test_slices_do_not_change_distances(monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model(tiny_config(num_register_tokens=2))
    images = random_images(model.config)
    whole = attention_distances(model, images)
    monkeypatch.setattr("vitrail.explain.record.SLICE_BYTES", 1)
    assert torch.allclose(attention_distances(model, images), whole, atol=1e-5)


def test_even_attention_looks_as_far_as_two_random_patches_are_apart() -> None:
    model = random_model(tiny_config(image_size=(16, 16)))
    with torch.no_grad():
        for block in model.encoder.blocks:
            block.attn.qkv.weight[:64] = 0
            block.attn.qkv.bias[:64] = 0
    places = [(4 * row, 4 * col) for row in range(4) for col in range(4)]
    expected = np.mean([math.dist(a, b) for a in places for b in places])
    assert torch.allclose(attention_distances(model, random_images(model.config)), torch.tensor(expected).float())


def test_without_renormalising_distances_would_shrink_with_what_the_class_token_takes() -> None:
    config = tiny_config(num_register_tokens=3)
    model, images = random_model(config).double(), random_images(config, batch=3)[:1].double()
    weights = whole_attention(model, images)[0][0]
    places = np.array([(4 * row, 4 * col) for row in range(3) for col in range(2)])
    apart = np.linalg.norm(places[:, None] - places[None], axis=-1)
    wrong = (weights[:, 4:, 4:] * apart).sum(-1).mean(-1)  # probing-vits
    assert (wrong < 0.9 * attention_distances(model, images)[0, 0].numpy()).all()


def test_intervals_over_images_shrink_with_their_number() -> None:
    model = random_model(tiny_config())
    images = torch.randn(64, 3, 12, 8, generator=torch.Generator().manual_seed(0))
    few, many = mean_distances(model, images[:4]), mean_distances(model, images)
    each = attention_distances(model, images)
    assert torch.allclose(many.mean, each.mean(0))
    assert torch.allclose(many.high - many.mean, 1.96 * each.std(0) / 8, atol=1e-5)
    assert ((many.high - many.low) < (few.high - few.low)).float().mean() > 0.8
    assert mean_distances(model, images[:1]).high.isinf().all()


@pytest.mark.parametrize("config", [tiny_config(), tiny_hybrid(), tiny_config(num_channels=1)])
def test_filters_are_principal_components_of_the_first_kernel(config: ViTConfig) -> None:
    model = random_model(config)
    ours = filters(model, count=6)
    kernel = model.stem.resnet.root.standardized() if model.stem.resnet else model.stem.proj.weight
    theirs = oracle_numpy.filters(kernel.detach().double().numpy(), 6)
    assert ours.of == ("root convolution" if model.stem.resnet else "patch embedding")
    assert ours.components.shape == (6, *kernel.shape[2:], kernel.shape[1])
    for our, their in zip(ours.components.numpy(), theirs.transpose(0, 2, 3, 1), strict=True):
        same = [(sign * their - (sign * their).min()) / np.ptp(their) for sign in (1, -1)]
        assert min(np.abs(our - one).max() for one in same) < 1e-5
        assert (our.min(), our.max()) == (0, 1)
    assert (np.diff(ours.explained) <= 1e-7).all()


@pytest.mark.parametrize(
    "fields", [{}, {"position_covers": "all", "num_register_tokens": 2}, {"position_covers": "patches"}]
)
def test_position_similarity_is_the_cosine_of_table_rows_without_prefix(fields: Any) -> None:
    config = tiny_config(image_size=(12, 20), **fields)
    model = random_model(config)
    assert model.tokens.position is not None
    table = model.tokens.position.table.detach()[0, -15:].double().numpy()
    assert np.allclose(position_similarity(model), oracle_numpy.position_similarity(table, (3, 5)), atol=1e-5)


def test_positions_that_are_computed_have_a_similarity_too_and_rotary_ones_have_none() -> None:
    fixed = random_model(tiny_config(position="sincos"))
    table = sincos_table((3, 2), 32)[0].double().numpy()
    assert np.allclose(position_similarity(fixed), oracle_numpy.position_similarity(table, (3, 2)), atol=1e-5)
    assert position_similarity(random_model(tiny_config(position="rotary"))) is None


def test_a_table_learnt_on_another_grid_is_shown_on_its_own() -> None:
    model = random_model(tiny_config(position_grid=(5, 4)))
    similarity = position_similarity(model)
    assert similarity is not None
    assert similarity.shape == (5, 4, 5, 4)


# Drawing -----------------------------------------------------------------------------------------------------------


def test_every_figure_is_drawn_for_one_checkpoint_and_for_two(tmp_path: Path) -> None:
    model, other = (
        random_model(tiny_config()),
        random_model(tiny_config(position="rotary", num_register_tokens=2), seed=5),
    )
    images = random_images(model.config, batch=5)
    made = figures(model, images, against=other, titles=("before", "after"), examples=3)
    paths = made.save(tmp_path, ("png", "svg"))
    assert {path.name for path in paths} == {
        *(f"{name}.{kind}" for name in ("filters", "positions", "distances", "examples") for kind in ("png", "svg")),
        "figures.npz",
        "figures.json",
    }
    for path in tmp_path.glob("*.svg"):
        assert "before" in path.read_text()
        ElementTree.parse(path)
    assert "no position table" in (tmp_path / "positions.svg").read_text()
    data = json.loads((tmp_path / "figures.json").read_text())
    assert [one["title"] for one in data["checkpoints"]] == ["before", "after"]
    assert data["checkpoints"][0]["mean_attention_distance"]["images"] == 5
    with np.load(tmp_path / "figures.npz") as arrays:
        assert np.allclose(arrays["against.examples"], rollout(other, images[:3]))
        assert np.allclose(arrays["distance.mean"], attention_distances(model, images).mean(0))


def test_the_same_numbers_give_the_same_bytes(tmp_path: Path) -> None:
    model = random_model(tiny_config())
    for name in ("one", "two"):
        figures(model, random_images(model.config)).save(tmp_path / name, ("svg",))
    for path in (tmp_path / "one").glob("*.svg"):
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


def test_a_pruned_head_has_no_point_and_null_in_json(tmp_path: Path) -> None:
    model = random_model(tiny_config(kept_heads=((0, 3), (1,))))
    made = figures(model, random_images(model.config))
    distances = made.data()["checkpoints"][0]["mean_attention_distance"]["mean"]
    made.save(tmp_path, ["png"])
    stored = json.loads((tmp_path / "figures.json").read_text())["checkpoints"][0]["mean_attention_distance"]["mean"]
    assert [[value is None for value in layer] for layer in stored] == [
        [False, True, True, False],
        [True, False, True, True],
    ]
    assert math.isnan(distances[0][1])


def test_tiles_and_grids_of_grids_put_everything_in_its_place() -> None:
    pictures = np.arange(5)[:, None, None, None] * np.ones((5, 2, 3, 3))
    canvas = tiles(pictures, across=3)
    assert canvas.shape == (5, 11, 3)
    assert (canvas[3:5, 4:7] == 4).all()
    assert (canvas[2] == 1).all()
    similarity = np.random.RandomState(0).rand(3, 4, 3, 4)
    whole = grid_of_grids(similarity)
    assert np.array_equal(whole[4:7, 10:14], similarity[1, 2])
    assert np.isnan(whole[3]).all()
    assert grid_of_grids(np.zeros((20, 20, 20, 20))).shape == (14 * 21 - 1, 14 * 21 - 1)


def test_a_spotlight_keeps_what_is_looked_at_and_darkens_the_rest() -> None:
    picture = np.full((8, 8, 3), 200, np.uint8)
    values = np.zeros((4, 4))
    values[:2] = 1.0
    lit = spotlit(picture, values)
    assert (lit[:2] == 200).all()
    assert (lit[-2:] == 20).all()


def test_the_command_writes_what_can_be_drawn_and_names_it(tmp_path: Path) -> None:
    draw = np.random.RandomState(0)
    for number in range(4):
        Image.fromarray(draw.randint(0, 255, (40, 40, 3), dtype=np.uint8)).save(tmp_path / f"{number}.png")
    (tmp_path / "4.png").write_bytes(b"")
    small = ["--set", "model.image_size=32", "--set", "model.num_hidden_layers=2"]
    result = CliRunner().invoke(
        command,
        [
            "Ti/16",
            str(tmp_path),
            "--against",
            "Ti/16",
            "--out",
            str(tmp_path / "out"),
            "--format",
            "svg",
            "--json",
            *small,
        ],
        catch_exceptions=False,
    )
    data = json.loads(result.stdout)
    assert len(data["files"]) == 6
    assert data["checkpoints"][1]["mean_attention_distance"]["images"] == 4
    assert "4.png: empty" in result.stderr
    without = CliRunner().invoke(command, ["Ti/16", "--out", str(tmp_path / "two"), *small], catch_exceptions=False)
    assert {Path(line).name for line in without.stdout.splitlines()} == {
        *("filters.png", "filters.svg", "positions.png", "positions.svg", "figures.npz", "figures.json")
    }
    with pytest.raises(UsageError, match="no figure format 'gif'"):
        CliRunner().invoke(command, ["Ti/16", "--format", "gif", *small], catch_exceptions=False)
