"""Does the verb give every picture its views, and do its files hold what was computed?"""

from __future__ import annotations

import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from oracle.tiny import random_images, random_model, tiny_config, tiny_hybrid
from PIL import Image

import vitrail.explain
from vitrail.errors import UsageError
from vitrail.explain.colours import coloured, overlaid, palette, stretched, value_range
from vitrail.explain.compare import bootstrap, compare
from vitrail.explain.explain import Explained, explain, explain_files
from vitrail.explain.methods import METHODS, View, options_of
from vitrail.explain.page import page
from vitrail.explain.relevance import relevance
from vitrail.explain.save import save
from vitrail.images.reading import BadPicture

KINDS = {
    "plain": tiny_config(),
    "hybrid": tiny_hybrid(),
    "registers, wide": tiny_config(num_register_tokens=2, image_size=(8, 24)),
    "distilled": tiny_config(distillation_token=True),
    "mean pooling": tiny_config(pooling="mean", class_token=False),
    "no classes": tiny_config(num_classes=0),
    "pruned": tiny_config(kept_heads=((1, 3), ())),
    "one channel": tiny_config(num_channels=1),
    "five channels": tiny_config(num_channels=5),
}


@pytest.mark.parametrize("config", KINDS.values(), ids=KINDS)
def test_every_method_works_on_every_kind_of_model(config: Any, tmp_path: Path) -> None:
    model, images = random_model(config), random_images(config, batch=3)
    found = explain(model, images, "all", window=2, steps=3, batch_size=2)
    assert [one.name for one in found] == ["image-0", "image-1", "image-2"]
    for one in found:
        assert list(one.views) == list(METHODS)
        assert all(np.isfinite(view.values).all() for view in one.views.values())
        assert one.picture.shape == (*config.image_size, 3)
        assert one.views["rollout"].values.shape == config.grid
        assert one.views["integrated_gradients"].values.shape == config.image_size
        assert one.views["pca"].values.shape == (*config.grid, 3)
    paths = save(found[0], tmp_path, "one", ("png", "svg", "npz", "json", "html"))
    assert len(paths) == 2 * (len(METHODS) - 1) + 3
    assert all(path.stat().st_size for path in paths)


def test_views_are_the_functions_of_the_same_name_for_the_predicted_class() -> None:
    model = random_model(tiny_config())
    images = random_images(model.config)
    predicted = model(images).argmax(1)
    for i, one in enumerate(explain(model, images)):
        assert list(one.views) == ["relevance"]
        assert np.allclose(one.views["relevance"].values, relevance(model, images)[i].numpy(), atol=1e-6)
        assert (one.target, one.label) == (predicted[i], str(int(predicted[i])))
        assert one.confidence == pytest.approx(model(images).softmax(1)[i, predicted[i]].item(), abs=1e-6)
        assert one.top[0] == (one.label, pytest.approx(one.confidence, abs=1e-6))


def test_a_class_per_image_goes_to_the_right_image_across_batches() -> None:
    model = random_model(tiny_config())
    images = random_images(model.config, batch=5)
    found = explain(model, images, target=[4, 3, 2, 1, 0], batch_size=2)
    assert [one.target for one in found] == [4, 3, 2, 1, 0]
    for image, one in zip(images, found, strict=True):
        alone = relevance(model, image[None], target=one.target)[0]
        assert np.allclose(one.views["relevance"].values, alone.numpy(), atol=1e-6)


def test_methods_that_start_from_a_pass_share_one_and_draw_the_same_maps() -> None:
    model = random_model(tiny_config())
    images, passes = random_images(model.config), []
    names = ["rollout", "relevance", "gradient_rollout", "attention_grad_cam"]
    alone = [explain(model, images, name, target=1)[0].views[name].values for name in names]
    handle = model.register_forward_pre_hook(lambda module, args: passes.append(len(args[0])))
    together = explain(model, images, names, target=1)[0].views
    handle.remove()
    assert passes == [len(images)]
    for name, values in zip(names, alone, strict=True):
        assert np.allclose(together[name].values, values, atol=1e-7), name


def test_options_reach_the_methods_that_take_them_and_no_option_is_ignored() -> None:
    model = random_model(tiny_config())
    images = random_images(model.config)
    first, last = (explain(model, images, "attention", layer=layer)[0].views["attention"].values for layer in (0, 1))
    assert not np.allclose(first, last)
    both = explain(model, images, ["attention", "relevance"], layer=0)[0].views
    assert np.allclose(both["attention"].values, first)
    with pytest.raises(UsageError, match="relevance takes no option 'layer'"):
        explain(model, images, "relevance", layer=0)
    with pytest.raises(UsageError, match="Did you mean discard"):
        explain(model, images, "rollout", discrad=0.5)
    with pytest.raises(UsageError, match="Did you mean rollout"):
        explain(model, images, "roll-out")
    with pytest.raises(UsageError, match="Invalid enum value 'sum'"):
        explain(model, images, "rollout", fuse="sum")
    with pytest.raises(UsageError, match="steps is 'many'"):
        explain(model, images, "integrated_gradients", steps="many")
    assert list(options_of("occlusion")) == ["window", "stride", "fill"]


def test_pictures_from_files_go_through_the_models_own_preprocessing(tmp_path: Path) -> None:
    model = random_model(tiny_config(image_size=(16, 16)))
    draw = np.random.RandomState(0)
    for name in ("b.png", "a.png"):
        Image.fromarray(draw.randint(0, 256, (16, 16, 3), dtype=np.uint8)).save(tmp_path / name)
    paths = [tmp_path / "b.png", tmp_path / "a.png"]
    found = explain(model, paths)
    for path, one in zip(paths, found, strict=True):
        pixels = np.asarray(Image.open(path))
        assert np.array_equal(one.picture, pixels)
        tensor = torch.from_numpy(pixels / 127.5 - 1).float().permute(2, 0, 1)[None]
        theirs = explain(model, tensor)[0]
        assert np.allclose(one.views["relevance"].values, theirs.views["relevance"].values, atol=1e-5)
        assert np.array_equal(theirs.picture, pixels)
    assert explain(model, paths[0])[0].name == str(paths[0])
    assert explain(model, Image.open(paths[0]))[0].name == "image-0"


def test_a_bad_file_is_told_and_the_good_ones_around_it_keep_their_places(tmp_path: Path) -> None:
    model = random_model(tiny_config())
    Image.new("RGB", (30, 20), "red").save(tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes(b"no picture")
    Image.new("RGB", (30, 20), "blue").save(tmp_path / "c.png")
    paths = [str(tmp_path / name) for name in ("a.png", "b.png", "c.png")]
    rows = list(explain_files(model, paths, target=[1, 2, 3]))
    assert [(file.source, result and result.target) for file, result in rows] == list(
        zip(paths, [1, None, 3], strict=True)
    )
    assert rows[1][0].error is not None
    with pytest.raises(BadPicture, match=r"b\.png"):
        explain(model, paths)


def test_the_package_answers_as_the_verb() -> None:
    model = random_model(tiny_config())
    images = random_images(model.config)
    called = vitrail.explain(model, images, "rollout")  # type: ignore[operator]
    assert np.array_equal(
        called[0].views["rollout"].values, explain(model, images, "rollout")[0].views["rollout"].values
    )


# Files -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def explained() -> Explained:
    model = random_model(tiny_config(num_register_tokens=1))
    model.labels = ["<b>cat</b>", "dog & co", 'a "fox"', "hen", "ox"]
    images = random_images(model.config)
    return explain(model, images, "all", scores=True, steps=3)[0]


def test_json_and_npz_hold_the_same_numbers(explained: Explained, tmp_path: Path) -> None:
    save(explained, tmp_path, "x", ("json", "npz"))
    data = json.loads((tmp_path / "x.json").read_text())
    with np.load(tmp_path / "x.npz") as arrays:
        assert set(arrays) == {*METHODS, "picture"}
        for name, view in explained.views.items():
            assert np.array_equal(arrays[name], view.values)
            assert np.allclose(data["views"][name]["values"], view.values, atol=1e-6)
    assert data["schema_version"] == 1
    assert data["label"] == explained.label
    scores = explained.views["rollout"].scores
    assert scores is not None
    assert data["views"]["rollout"]["scores"]["road"] == pytest.approx(scores.road, abs=1e-6)
    assert "scores" not in data["views"]["pca"]


def test_svg_has_one_titled_pane_per_patch(explained: Explained, tmp_path: Path) -> None:
    save(explained, tmp_path, "x", ["svg"])
    root = ElementTree.parse(tmp_path / "x.rollout.svg").getroot()
    panes = root.findall(".//{*}rect")
    values = explained.views["rollout"].values
    assert len(panes) == values.size
    assert panes[3].findtext("{*}title") == f"row 1, column 1: {values[1, 1]:.4g}"
    ElementTree.parse(tmp_path / "x.integrated_gradients.svg")  # a raster inside, still well-formed


class Page(HTMLParser):
    """What a browser would fetch or run, and the text it would show."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.tags: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attributes: Any) -> None:
        self.tags.append(tag)
        self.addresses += [value for name, value in attributes if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_needs_no_network_and_no_script_and_shows_names_as_they_are(explained: Explained) -> None:
    shown = Page()
    shown.feed(page(Explained(**{**vars(explained), "name": "<script>alert(1)</script>.png"})))
    assert all(address.startswith("data:image/") for address in shown.addresses)
    assert "script" not in shown.tags
    assert "b" not in shown.tags
    assert "<script>alert(1)</script>.png" in shown.text
    assert explained.label is not None
    assert explained.label in shown.text
    assert shown.tags.count("figure") == len(METHODS) - 1
    assert "default-src 'none'" in page(explained)
    assert len(re.findall(r"Deletion [\d.]+ ", shown.text)) == 10


def test_an_unknown_format_is_refused_before_anything_is_written(explained: Explained, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Did you mean png"):
        save(explained, tmp_path / "new", "x", ["pngg"])
    assert not (tmp_path / "new").exists()


# Colours -----------------------------------------------------------------------------------------------------------


def lab_distance(colours: np.ndarray) -> np.ndarray:
    """CIELAB steps between neighbouring colours, by the CIE's own formulas."""
    rgb = colours / 255
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    xyz = linear @ np.array(
        [[0.4124564, 0.2126729, 0.0193339], [0.3575761, 0.7151522, 0.119192], [0.1804375, 0.072175, 0.9503041]]
    )
    scaled = xyz / [0.95047, 1.0, 1.08883]
    cubed = np.where(scaled > 216 / 24389, np.cbrt(scaled), (24389 / 27 * scaled + 16) / 116)
    return np.stack(
        [116 * cubed[:, 1] - 16, 500 * (cubed[:, 0] - cubed[:, 1]), 200 * (cubed[:, 1] - cubed[:, 2])], axis=1
    )


@pytest.mark.parametrize("name", ["magma", "viridis", "cividis", "inferno"])
def test_palettes_for_amounts_grow_lighter_in_even_steps(name: Any) -> None:
    lightness = lab_distance(palette(name).astype(float))[::8, 0]
    steps = np.diff(lightness)
    assert (steps > 0).all()
    assert steps.std() < 0.35 * steps.mean()


def test_the_palette_for_signs_is_symmetric_in_lightness_and_even() -> None:
    lightness = lab_distance(palette("signed").astype(float))[:, 0]
    assert np.abs(lightness - lightness[::-1]).max() < 4
    assert (np.diff(lightness[:128]) > -0.8).all()
    assert np.diff(lightness[:128:8]).std() < 0.35 * np.diff(lightness[:128:8]).mean()
    jet = np.array([[0, 0, 128], [0, 0, 255], [0, 255, 255], [255, 255, 0], [255, 0, 0], [128, 0, 0]], float)
    assert not (np.diff(lab_distance(jet)[:, 0]) > 0).all()  # what this test would say about JET


def test_zero_is_white_and_one_sink_does_not_hide_the_rest() -> None:
    assert (coloured(np.array([-1.0, 0.0, 1.0]), "signed", -1, 1)[1] > 240).all()
    values = np.linspace(0, 1, 256).reshape(16, 16)
    values[0, 0] = 100.0
    assert value_range(values, signed=False)[1] < 1.01
    assert value_range(np.zeros((4, 4)), signed=False) == (0.0, 0.0)
    assert coloured(np.zeros((4, 4))).shape == (4, 4, 3)


def test_panes_are_even_and_smooth_maps_meet_the_values_at_patch_centres() -> None:
    values = np.random.RandomState(0).rand(3, 5)
    assert np.array_equal(stretched(values, (12, 20)), np.kron(values, np.ones((4, 4))))
    smooth = stretched(values, (9, 15), smooth=True)
    assert np.allclose(smooth[1::3, 1::3], values)
    theirs = torch.nn.functional.interpolate(torch.from_numpy(values)[None, None], (12, 20), mode="bilinear")[0, 0]
    assert np.allclose(stretched(values, (12, 20), smooth=True), theirs)
    assert stretched(np.ones((1, 1)), (4, 4), smooth=True).tolist() == [[1] * 4] * 4


def test_an_overlay_keeps_light_and_dark_of_the_picture() -> None:
    picture = np.zeros((2, 2, 3), np.uint8)
    picture[0] = 255
    mixed = overlaid(picture, np.full((2, 2, 3), 100, np.uint8), strength=0.5)
    assert mixed[0, 0].tolist() == [178] * 3
    assert mixed[1, 0].tolist() == [50] * 3


# Comparing ---------------------------------------------------------------------------------------------------------


def test_comparing_ranks_methods_above_a_random_order_on_a_model_that_has_learnt(reader: Any, digits: Any) -> None:
    ranks = compare(reader, digits[0][1400:1416], ["occlusion", "relevance", "norms", "rollout"], steps=5)
    order = [one.method for one in ranks]
    assert set(order) == {"occlusion", "relevance", "rollout", "random"}  # norms is no explanation
    assert [one.total.mean for one in ranks] == sorted((one.total.mean for one in ranks), reverse=True)
    by_name = {one.method: one for one in ranks}
    assert by_name["random"].over_random.mean == 0
    assert by_name["random"].verdict == "no better than random"
    assert order[-1] == "random"
    for one in ranks:
        assert one.total.low <= one.total.mean <= one.total.high
        assert one.total.mean == pytest.approx((one.insertion.mean - one.deletion.mean + one.road.mean) / 2)


def test_bootstrap_intervals_hold_the_mean_and_shrink_with_more_pictures() -> None:
    draw = np.random.RandomState(0)
    few, many = bootstrap(draw.standard_normal(20)), bootstrap(draw.standard_normal(2000))
    assert few.low < few.mean < few.high
    assert many.high - many.low == pytest.approx(2 * 1.96 / np.sqrt(2000), rel=0.1)
    assert few.high - few.low > 5 * (many.high - many.low)


def test_one_picture_is_too_few_to_compare_on() -> None:
    model = random_model(tiny_config())
    with pytest.raises(UsageError, match="At least 2"):
        compare(model, random_images(model.config)[:1])


def test_a_view_of_a_lens_has_no_picture_but_stands_in_the_page() -> None:
    view = View("lens", "blocks", np.array([[0.5, 0.2]]), notes={"labels": [["cat", "dog"]]})
    empty = Explained("x", np.zeros((8, 8, 3), np.uint8), (2, 2), 0, "cat", 0.5, [("cat", 0.5)], {"lens": view})
    assert "cat 50.0%" in page(empty)
    assert io.BytesIO(page(empty).encode()).getbuffer().nbytes < 5_000
