"""Asked for another model than the one in the file, is the rest of it what it was?"""

import json

import pytest
import torch
from torch.nn.functional import interpolate

from vitrail.checkpoint import load, save
from vitrail.checkpoint.adapt import resize_channels, resize_kernel, resize_matrix, resize_table
from vitrail.config import replace

from .tiny import CONFIGS, picture, random_model


def test_another_resolution_reads_the_table_off_the_new_grid(tmp_path):
    model = random_model(CONFIGS["plain"])
    save(model, tmp_path)
    again = load(tmp_path, image_size=(16, 24))
    assert again.config.image_size == (16, 24)
    assert again.config.position_grid is None
    expected = resize_table(model.state_dict()["tokens.position.table"], model.config, (4, 6))
    assert torch.equal(again.state_dict()["tokens.position.table"], expected)
    assert again.preprocess.size == (16, 24)
    assert again.origin.adaptations == ["positions of 2 x 2 patches resized to 4 x 6 as hf does"]
    x = picture(again.config)
    assert torch.allclose(again(x), model(x), atol=1e-5)  # the model itself would resize for this picture


def test_the_size_asked_for_is_the_size_prepared_whatever_the_file_prepares(tmp_path):
    save(random_model(replace(CONFIGS["plain"], image_size=(32, 32))), tmp_path)
    path = tmp_path / "preprocessor_config.json"  # as DINOv2: positions for one size, pictures prepared in another
    sizes = {"size": {"shortest_edge": 20}, "do_center_crop": True, "crop_size": {"height": 16, "width": 16}}
    path.write_text(json.dumps(json.loads(path.read_text()) | sizes))
    found = {size: load(tmp_path, **({"image_size": size} if size else {})).preprocess for size in (None, 16, 24, 32)}
    assert {size: how.size[0] for size, how in found.items()} == {None: 16, 16: 16, 24: 24, 32: 32}
    assert {size: how.resize for size, how in found.items()} == {None: 20, 16: 20, 24: 30, 32: 40}


def test_resized_patches_through_the_resized_kernel_give_the_same_embedding():
    kernel = torch.randn(5, 3, 8, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    patch = torch.randn(1, 3, 8, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    larger = interpolate(patch, size=(12, 16), mode="bilinear", align_corners=False)
    before = (kernel * patch).sum(dim=(1, 2, 3))
    after = (resize_kernel(kernel, (12, 16)) * larger).sum(dim=(1, 2, 3))
    assert torch.allclose(before, after, atol=1e-10)
    assert torch.allclose(resize_matrix((8, 6), (12, 16)) @ patch[0, 0].flatten(), larger[0, 0].flatten(), atol=1e-12)
    assert resize_kernel(kernel, (8, 6)) is kernel


def test_another_patch_size_keeps_the_grid_where_the_picture_grows_with_it(tmp_path):
    model = random_model(CONFIGS["plain"])
    save(model, tmp_path)
    again = load(tmp_path, patch_size=8, image_size=16)
    assert again.state_dict()["stem.proj.weight"].shape == (12, 3, 8, 8)
    small = picture(model.config)
    large = torch.cat([interpolate(small[..., r : r + 4, c : c + 4], size=(8, 8), mode="bilinear", align_corners=False)
                       for r in (0, 4) for c in (0, 4)])  # fmt: skip
    rows = [torch.cat(large.split(2)[start : start + 2], dim=3) for start in (0, 2)]
    assert torch.allclose(again(torch.cat(rows, dim=2)), model(small), atol=1e-4)


@pytest.mark.parametrize("count", [1, 2, 4, 7])
def test_a_picture_of_equal_channels_gives_the_same_embedding_for_any_number_of_them(count, tmp_path):
    model = random_model(CONFIGS["plain"])
    save(model, tmp_path)
    again = load(tmp_path, num_channels=count)
    grey = picture(replace(model.config, num_channels=1))
    assert torch.allclose(again(grey.expand(-1, count, -1, -1)), model(grey.expand(-1, 3, -1, -1)), atol=1e-5)
    assert len(again.preprocess.mean) == count
    kernel = model.state_dict()["stem.proj.weight"]
    assert torch.allclose(resize_channels(kernel, count).sum(1), kernel.sum(1), atol=1e-5)


def test_another_head_starts_at_zero_and_the_rest_stays(tmp_path):
    model = random_model(CONFIGS["distilled"])
    save(model, tmp_path)
    again = load(tmp_path, labels=["cat", "dog"])
    assert again.labels == ["cat", "dog"]
    assert again.config.num_classes == 2
    assert not again(picture(again.config)).any()
    assert again.origin.adaptations == ["classifier of 5 classes replaced by one of 2, initialised zero"]
    same = [key for key in again.state_dict() if not key.startswith("head.classifier")]
    assert all(torch.equal(again.state_dict()[key], model.state_dict()[key]) for key in same)
    assert load(tmp_path, num_classes=0).config.num_classes == 0
    assert load(tmp_path, labels=list("vwxyz")).labels == list("vwxyz")
