"""Do positions end up where they belong, at any size?"""

from __future__ import annotations

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracle.tiny import random_images, random_model, tiny_config, tiny_hybrid

from vitrail.config import ViTConfig, literal_values
from vitrail.errors import ConfigError
from vitrail.model.probe import Probe
from vitrail.model.tokens import PositionTable, resample

METHODS = literal_values(ViTConfig, "position_resampling")
few = settings(max_examples=25, deadline=None, derandomize=True)
grids = st.tuples(st.integers(1, 9), st.integers(1, 9))


def table(grid: tuple[int, int], dim: int = 3) -> torch.Tensor:
    return torch.randn(1, grid[0] * grid[1], dim, generator=torch.Generator().manual_seed(0))


@given(grid=grids, method=st.sampled_from(METHODS))
@few
def test_resampling_to_the_same_grid_changes_nothing(grid: tuple[int, int], method: str) -> None:
    rows = table(grid)
    assert torch.allclose(resample(rows, grid, grid, method), rows, atol=1e-6)


@given(old=grids, new=grids, method=st.sampled_from(METHODS))
@few
def test_a_table_of_rows_stays_a_table_of_rows(old: tuple[int, int], new: tuple[int, int], method: str) -> None:
    """Where the table only knows its row, so does the resampled one; likewise for columns. No scrambling hides that."""
    assume(old != new)
    row, col = (axis.flatten().float() for axis in torch.meshgrid(*map(torch.arange, old), indexing="ij"))
    moved = resample(torch.stack([row, col], dim=1)[None], old, new, method).unflatten(1, new)[0]
    assert torch.allclose(moved[:, :, 0], moved[:, :1, 0].expand(new), atol=1e-4)
    assert torch.allclose(moved[:, :, 1], moved[:1, :, 1].expand(new), atol=1e-4)
    for axis, places in ((0, moved[:, 0, 0]), (1, moved[0, :, 1])):
        if method in ("google", "torchvision") and new[axis] > 1 and old[axis] > 1:  # corners stay corners
            assert places[[0, -1]].tolist() == pytest.approx([0, old[axis] - 1], abs=1e-4)
        if old[axis] > 1:
            assert (places.diff() > -1e-4).all()


@given(old=grids, new=grids, method=st.sampled_from(METHODS))
@few
def test_a_model_that_changes_sides_changes_sides(old: tuple[int, int], new: tuple[int, int], method: str) -> None:
    """Transposing the table and the grids transposes the result: rows and columns are treated alike."""
    rows = table(old)
    turned = rows.unflatten(1, old).transpose(1, 2).flatten(1, 2)
    straight = resample(rows, old, new, method).unflatten(1, new)
    across = resample(turned, old[::-1], new[::-1], method).unflatten(1, new[::-1])
    assert torch.allclose(straight, across.transpose(1, 2), atol=1e-5)


def test_a_table_goes_by_its_grid_and_never_by_its_count() -> None:
    """2 x 8, 4 x 4 and 8 x 2 all have 16 rows: two famous libraries confuse them."""
    config = tiny_config(image_size=(8, 32))
    model = random_model(config)
    positions = model.tokens.position
    assert positions.grid == (2, 8)
    assert torch.equal(positions((2, 8)), positions.table)
    for other in ((4, 4), (8, 2)):
        expected = resample(positions.table[:, 1:], (2, 8), other, "hf")
        assert torch.equal(positions(other)[:, 1:], expected)
        assert not torch.allclose(expected, positions.table[:, 1:], atol=0.1)
        assert torch.equal(positions(other)[:, :1], positions.table[:, :1])


def test_a_table_may_come_from_another_grid_than_the_models_own() -> None:
    config = tiny_config(position_grid=(5, 4), num_register_tokens=2, position_covers="all")
    positions = PositionTable(config)
    assert positions.table.shape == (1, 3 + 20, 32)
    assert positions(config.grid).shape == (1, 3 + 6, 32)


COVERED = {
    # what the table covers: which of [class, distillation, register, register, patches ...] move
    "all": [True, True, True, True],
    "class": [True, True, False, False],
    "patches": [False, False, False, False],
}


@pytest.mark.parametrize("covers", COVERED)
@pytest.mark.parametrize("size", [(12, 8), (8, 16)])
def test_prefix_tokens_have_a_position_only_where_the_table_covers_them(covers: str, size: tuple[int, int]) -> None:
    config = tiny_config(num_register_tokens=2, distillation_token=True, position_covers=covers)
    model, probe = random_model(config), Probe("tokens.*")
    with torch.no_grad():
        model(random_images(config, size=size), probe)
    added = (probe["tokens.positioned"] - probe["tokens.concat"]).abs().amax(dim=(0, 2)) > 1e-3
    patches = size[0] * size[1] // 16
    assert added.tolist() == COVERED[covers] + [True] * patches
    order = [("class", 0, 1), ("distillation", 1, 2), ("registers", 2, 4), ("patches", 4, 4 + patches)]
    for name, start, end in order:
        assert torch.equal(probe[f"tokens.{name}"], probe["tokens.concat"][:, start:end])


def test_each_patch_token_is_its_own_patch_of_the_picture() -> None:
    """Row by row: changing one pixel changes the token of that patch and no other."""
    config = tiny_config(image_size=(12, 20))
    model, images = random_model(config), random_images(config, batch=1)
    touched = images.clone()
    touched[0, 1, 9, 6] += 1.0  # patch row 2, column 1 of 5
    with torch.no_grad():
        before, after = (model.stem(x).flatten(2).transpose(1, 2) for x in (images, touched))
    changed = (before - after).abs().amax(dim=(0, 2)) > 1e-6
    assert changed.nonzero().flatten().tolist() == [2 * 5 + 1]


@pytest.mark.parametrize("position", literal_values(ViTConfig, "position"))
@pytest.mark.parametrize("size", [(20, 8), (4, 36)])
def test_pictures_of_other_sizes_are_read(position: str, size: tuple[int, int]) -> None:
    config = tiny_config(position=position)
    tokens = random_model(config).features(random_images(config, size=size))
    assert tokens.shape == (2, 1 + size[0] * size[1] // 16, 32)
    assert tokens.isfinite().all()


@pytest.mark.parametrize("method", METHODS)
def test_sixteen_bit_models_read_other_sizes_too(method: str) -> None:
    config = tiny_config(position_resampling=method)
    model, images = random_model(config), random_images(config, size=(20, 8))
    with torch.no_grad():
        expected, result = model(images), model.bfloat16()(images.bfloat16())
    assert result.dtype == torch.bfloat16
    assert torch.allclose(result.float(), expected, atol=0.15)


def test_pictures_that_cannot_be_cut_are_refused_with_sizes_that_can() -> None:
    config = tiny_config()
    with pytest.raises(ConfigError, match=r"height of 12 or 16 and a width of 8"):
        random_model(config)(random_images(config, size=(13, 8)))


@pytest.mark.parametrize("size", [(37, 30), (32, 32), (9, 8), (41, 17), (64, 33)])
@pytest.mark.parametrize("padding", ["same", "symmetric"])
@pytest.mark.parametrize("layers", [(), (1,), (1, 1), (1, 1, 1)])
def test_a_hybrids_grid_by_arithmetic_is_the_grid_it_makes(size: tuple, padding: str, layers: tuple) -> None:
    config = tiny_hybrid(padding=padding, layers=layers)
    model = random_model(config)
    with torch.no_grad():
        grid = model.stem(random_images(config, size=size))
    assert tuple(grid.shape[2:]) == config.grid_for(size)
