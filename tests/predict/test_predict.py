"""Pictures in, rows out: the right answers, in the right order, under the right names, whatever is given."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from predict.conftest import LABELS, photo

import vitrail
from vitrail.bulk.written import Written
from vitrail.images.listing import list_inputs
from vitrail.images.reading import BadPicture
from vitrail.images.transforms import normalise, read
from vitrail.model.vit import VisionTransformer
from vitrail.predict.prediction import Prediction, Predictions, most_probable

EXACT = {"engine": "torch", "precision": "exact"}
COLUMNS = ["path", "status", "error", "width", "height", "label", "index", "probability"]


def by_hand(model: VisionTransformer, source: object) -> list[tuple[str, float]]:
    """The classes of a picture by the model's own code, most probable first."""
    pixels, _ = read(source, model.preprocess)  # type: ignore[arg-type]
    with torch.inference_mode():
        chances = model(normalise(pixels[None], model.preprocess)).softmax(-1)[0]
    order = chances.argsort(descending=True)
    return [(model.labels[index], float(chances[index])) for index in order]


def test_one_picture_is_one_prediction_however_it_is_given(model, tmp_path):
    image, path = photo(1), tmp_path / "one.png"
    image.save(path)
    expected = by_hand(model, image)
    for given in (path, str(path), path.read_bytes(), image, np.asarray(image)):
        found = vitrail.predict(model, given, top=3, **EXACT)
        assert isinstance(found, Prediction)
        assert [answer.label for answer in found.top] == [label for label, _ in expected[:3]]
        assert found.probability == pytest.approx(expected[0][1], abs=1e-5)
        assert (found.label, found.index) == (expected[0][0], LABELS.index(expected[0][0]))
        assert (found.width, found.height, found.status) == (40, 40, "ok")


def test_a_model_predicts_by_itself(model):
    assert model.predict(photo(1), **EXACT) == vitrail.predict(model, photo(1), **EXACT)


def test_what_stands_for_several_pictures_gives_several(model, photos, monkeypatch):
    images = [photo(number) for number in range(3)]
    expected = [by_hand(model, image)[0][0] for image in images]
    stacked = np.stack([np.asarray(image) for image in images])
    for given in (images, tuple(images), stacked, iter(images), [np.asarray(image) for image in images]):
        found = vitrail.predict(model, given, **EXACT)
        assert isinstance(found, Predictions)
        assert [row.label for row in found] == expected
    files = [str(item) for item in list_inputs([photos]).items]
    for given in (photos, str(photos), [photos]):
        assert [row.path for row in vitrail.predict(model, given, **EXACT)] == files
    monkeypatch.chdir(photos)
    odd = [f"a/{number:02}.png" for number in range(1, 12, 2)]
    assert [row.path for row in vitrail.predict(model, "a/*.png", **EXACT)] == odd
    mixed = vitrail.predict(model, ["b/00.png", images[2], "a/*.png"], **EXACT)
    assert [row.path for row in mixed][:3] == ["b/00.png", "picture 1", "a/01.png"]
    assert mixed[1].label == expected[2]


def test_a_single_picture_that_cannot_be_read_is_an_exception_with_its_name(model, photos):
    with pytest.raises(BadPicture, match=r"a/broken.jpg: ") as caught:
        vitrail.predict(model, photos / "a" / "broken.jpg", **EXACT)
    assert caught.value.reason in ("corrupt", "truncated", "unknown_format")
    with pytest.raises(vitrail.VitrailError, match="given as int"):
        vitrail.predict(model, 3, **EXACT)


def test_among_several_it_is_a_row(model, photos):
    found = vitrail.predict(model, photos, **EXACT)
    assert [Path(row.path).name for row in found.errors] == ["broken.jpg", "empty.png"]
    assert all(row.label is None and row.top == () and row.error for row in found.errors)
    assert len(found) == 14


def test_results_read_well(model, photos):
    one = vitrail.predict(model, photo(2), top=2, **EXACT)
    assert repr(one) == f"picture 0: {one.label} {one.probability:.1%}, {one.top[1]}"
    text = repr(vitrail.predict(model, photos, top=1, **EXACT)).splitlines()
    assert len(text) == 15
    assert "empty.png: empty: The file is empty (0 bytes)." in text[-2]
    assert text[-1] == "14 pictures, 2 that cannot be read"


def test_a_model_without_classes_is_told_to_embed(photos):
    bare = vitrail.create("Ti/16", num_classes=0, num_hidden_layers=1, image_size=32, seed=0)
    with pytest.raises(vitrail.VitrailError, match="no classes"):
        vitrail.predict(bare, photos, **EXACT)


def test_equal_chances_come_in_the_order_of_their_numbers():
    chances = np.array([[0.2, 0.3, 0.2, 0.3], [0.25, 0.25, 0.25, 0.25]])
    assert most_probable(chances, 3).tolist() == [[1, 3, 0], [0, 1, 2]]
    assert most_probable(chances, 9).tolist() == [[1, 3, 0, 2], [0, 1, 2, 3]]


# tables


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_a_table_has_the_same_rows_in_every_format(model, photos, tmp_path, suffix):
    out = tmp_path / f"rows.{suffix}"
    written = vitrail.predict(model, photos, out=out, top=2, **EXACT)
    assert isinstance(written, Written)
    assert (written.rows, written.bad) == (14, 2)
    rows = read_table(out)
    expected = vitrail.predict(model, photos, top=2, **EXACT)
    assert list(rows[0]) == [*COLUMNS, "top2", "notes"]
    for row, prediction in zip(rows, expected, strict=True):
        top = [{"label": one.label, "index": one.index, "probability": one.probability} for one in prediction.top]
        assert row["top2"] == top
        for name in COLUMNS:
            assert row[name] == getattr(prediction, name), name
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("rows")] == [out.name]


def read_table(out: Path) -> list[dict[str, object]]:
    if out.suffix == ".parquet":
        parquet = pytest.importorskip("pyarrow.parquet", reason="the extra `parquet` is not installed")
        return parquet.read_table(out).to_pylist()
    if out.suffix == ".jsonl":
        return [json.loads(line) for line in out.read_text().splitlines()]
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    kinds = {"width": int, "height": int, "index": int, "probability": float, "top2": json.loads, "notes": json.loads}
    return [{name: kinds.get(name, str)(value) if value else None for name, value in row.items()} for row in rows]


def test_a_result_is_never_overwritten_and_never_among_the_pictures(model, photos, tmp_path):
    out = tmp_path / "rows.csv"
    out.write_text("mine")
    with pytest.raises(vitrail.VitrailError, match="exists"):
        vitrail.predict(model, photos, out=out, **EXACT)
    assert out.read_text() == "mine"
    with pytest.raises(vitrail.VitrailError, match="among the pictures"):
        vitrail.predict(model, photos, out=photos / "rows.csv", **EXACT)
    with pytest.raises(vitrail.VitrailError, match=r"\.csv, \.jsonl, \.parquet"):
        vitrail.predict(model, photos, out=tmp_path / "rows.txt", **EXACT)
    with pytest.raises(vitrail.VitrailError, match="Paths, folders or patterns"):
        vitrail.predict(model, [photo(1)], out=tmp_path / "others.csv", **EXACT)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["photos", "rows.csv"]
