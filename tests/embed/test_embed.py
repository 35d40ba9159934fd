"""Are features the model's own, under the right names, in every format; and are neighbours and duplicates true?"""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from embed.conftest import photo

import vitrail
from vitrail.bulk import parts
from vitrail.bulk.written import Written
from vitrail.cli import embed as command
from vitrail.embed.embed import Feature
from vitrail.embed.embedding import Embeddings
from vitrail.embed.nearest import nearest
from vitrail.errors import UsageError
from vitrail.images.reading import BadPicture
from vitrail.images.transforms import normalise, read

EXACT = {"engine": "torch", "precision": "exact", "batch_size": 4}


def by_hand(model, source, feature: str) -> np.ndarray:
    """The features of a picture by the model's own code."""
    pixels, _ = read(source, model.preprocess)
    with torch.inference_mode():
        tokens = model.features(normalise(pixels[None], model.preprocess))[0].numpy()
    return {"token": tokens[0], "mean": tokens[1:].mean(0), "grid": tokens[1:].reshape(4, 4, -1)}[feature]


@pytest.mark.parametrize("feature", ["token", "mean", "grid"])
def test_features_are_those_of_the_model(model, photos, feature):
    alone = vitrail.embed(model, photo(3), feature=feature, **EXACT)
    np.testing.assert_allclose(alone, by_hand(model, photo(3), feature), atol=1e-4)
    found = vitrail.embed(model, photos, feature=feature, **EXACT)
    assert isinstance(found, Embeddings)
    for row, values in zip(found, found.values, strict=True):
        if row.error:
            assert np.isnan(values).all()
        else:
            np.testing.assert_allclose(values, by_hand(model, row.path, feature), atol=1e-4)
    assert [Path(row.path).name for row in found.errors] == ["broken.jpg", "empty.png"]
    assert np.asarray(found).shape == (16, *alone.shape)


def test_a_model_embeds_by_itself_and_one_bad_picture_is_an_exception(model, photos):
    np.testing.assert_array_equal(model.embed(photo(3), **EXACT), vitrail.embed(model, photo(3), **EXACT))
    with pytest.raises(BadPicture, match="empty"):
        model.embed(photos / "b" / "empty.png", **EXACT)
    assert len(model.embed([], **EXACT)) == 0


def test_duplicates_name_the_first_of_their_kind(model, photos):
    found = {Path(row.path).name: row for row in vitrail.embed(model, photos, **EXACT)}
    assert (found["copy.png"].duplicate, Path(found["copy.png"].duplicate_of).name) == ("exact", "03.png")
    assert (found["large.jpg"].duplicate, Path(found["large.jpg"].duplicate_of).name) == ("near", "05.png")
    assert [name for name, row in found.items() if row.duplicate] == ["copy.png", "large.jpg"]


# neighbours


@pytest.mark.parametrize("block", [3, 7, 64])
def test_the_nearest_are_those_of_a_sort_of_all_cosines(block):
    values = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
    values[[4, 30]] = np.nan
    values[9] = 0
    values[20] = 3 * values[21]
    places, cosines = nearest(values, 5, block)
    wide = values.astype(np.float64)
    lengths = np.linalg.norm(wide, axis=1)
    all_cosines = wide @ wide.T / np.maximum(np.outer(lengths, lengths), 1e-300)
    all_cosines[:, [4, 30, 9]] = all_cosines[[4, 30, 9]] = -9.0
    np.fill_diagonal(all_cosines, -9.0)
    for row in range(40):
        if row in (4, 30, 9):
            assert (places[row] == -1).all()
            assert np.isnan(cosines[row]).all()
        else:
            assert len(set(places[row].tolist())) == 5
            np.testing.assert_allclose(cosines[row], np.sort(all_cosines[row])[::-1][:5], atol=1e-6)
            np.testing.assert_allclose(cosines[row], all_cosines[row][places[row]], atol=1e-6)
    assert places[20][0] == 21


@pytest.mark.parametrize("block", [2, 5, 100])
def test_equal_neighbours_come_in_the_order_of_their_places(block):
    values = np.array([[1, 0]] * 6 + [[0, 1]] * 3, np.float32)
    places, _ = nearest(values, 3, block)
    assert places.tolist() == [
        *([1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2], [0, 1, 2], [0, 1, 2]),
        *([7, 8, 0], [6, 8, 0], [6, 7, 0]),
    ]


def test_of_few_pictures_all_others_are_neighbours(model, photos):
    found = vitrail.embed(model, [photo(1), photo(2), photos / "b" / "empty.png"], neighbours=5, **EXACT)
    assert [[one.path for one in row.neighbours] for row in found] == [["picture 1"], ["picture 0"], []]


# files


@pytest.mark.parametrize("feature", ["token", "grid"])
@pytest.mark.parametrize("suffix", ["npy", "npz", "parquet"])
def test_every_format_holds_the_same(model, photos, tmp_path, suffix, feature, monkeypatch):
    monkeypatch.setattr(parts, "ROWS", 5)  # several parts
    out = tmp_path / f"f.{suffix}"
    written = vitrail.embed(model, photos, out=out, feature=feature, neighbours=2, **EXACT)
    assert isinstance(written, Written)
    assert (written.rows, written.errors) == (16, {"corrupt": 1, "empty": 1})
    expected = vitrail.embed(model, photos, feature=feature, neighbours=2, **EXACT)
    rows, values = contents(out)
    np.testing.assert_array_equal(values, expected.values)
    for row, one in zip(rows, expected, strict=True):
        near = [(other.path, pytest.approx(other.similarity)) for other in one.neighbours]
        assert row == (one.path, one.status, one.error, one.width, one.height, one.duplicate_of, near)
    beside = ["f.csv", "f.npy"] if suffix == "npy" else [out.name]
    assert sorted(path.name for path in tmp_path.iterdir()) == [*beside, "photos"]


def contents(out: Path) -> tuple[list[tuple], np.ndarray]:
    """Rows as tuples, and features, from a file in any of the formats."""
    return {".npy": of_npy, ".npz": of_npz, ".parquet": of_parquet}[out.suffix](out)


def of_npy(out: Path):
    names = ["path", "status", "error", "width", "height", "duplicate_of"]
    rows = []
    with out.with_suffix(".csv").open(newline="") as file:
        for row in csv.DictReader(file):
            values = [int(row[name]) if name in ("width", "height") and row[name] else row[name] for name in names]
            near = [(one["path"], one["similarity"]) for one in json.loads(row["neighbours"])]
            rows.append((*(value or None for value in values), near))
    return rows, np.load(out)


def of_npz(out: Path):
    with np.load(out) as found:
        paths = found["path"].tolist()
        columns = [found[name].tolist() for name in ("status", "error", "width", "height", "duplicate_of")]
        near = zip(found["neighbours"].tolist(), found["similarity"].tolist(), strict=True)
        pairs = [[(paths[place], cosine) for place, cosine in zip(*one, strict=True) if place >= 0] for one in near]
        rows = [
            (path, status, error or None, *(side if side >= 0 else None for side in sides), same, two)
            for path, status, error, *sides, place, two in zip(paths, *columns, pairs, strict=True)
            for same in [paths[place] if place >= 0 else None]
        ]
        return rows, found["features"]


def of_parquet(out: Path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="the extra `parquet` is not installed")
    table = parquet.read_table(out)
    shape = [int(size) for size in table.schema.field("feature").metadata[b"shape"].split(b",")]
    names = ["path", "status", "error", "width", "height", "duplicate_of"]
    rows = [
        (*(row[name] for name in names), [(one["path"], one["similarity"]) for one in row["neighbours"]])
        for row in table.to_pylist()
    ]
    return rows, np.array(table["feature"].to_pylist(), np.float32).reshape(-1, *shape)


class Killed(BaseException):
    """The process is gone; what is in memory is lost."""


@pytest.mark.parametrize("suffix", ["npy", "npz", "parquet"])
@pytest.mark.parametrize("after", [0, 4, 9, 16])
def test_a_job_goes_on_to_the_features_it_would_have_had(model, photos, tmp_path, after, suffix, monkeypatch):
    monkeypatch.setattr(parts, "ROWS", 3)
    whole, out = tmp_path / f"whole.{suffix}", tmp_path / f"f.{suffix}"
    vitrail.embed(model, photos, out=whole, neighbours=2, **EXACT)

    def told(done: int, total: int) -> None:
        if done >= after:
            raise Killed

    with monkeypatch.context() as killed:  # dies without committing what it has
        killed.setattr(parts.Parts, "__exit__", lambda writer, *_: [file.close() for file in writer.files.values()])
        with pytest.raises(Killed):
            vitrail.embed(model, photos, out=out, neighbours=2, told=told, **EXACT)
    assert not out.exists()
    vitrail.embed(model, photos, out=out, neighbours=2, resume=True, **EXACT)
    (rows, values), (expected, numbers) = contents(out), contents(whole)
    assert rows == expected
    np.testing.assert_array_equal(values, numbers)
    assert not out.with_name(f"{out.name}.parts").exists()


def test_between_table_and_array_a_kill_costs_nothing(model, photos, tmp_path, monkeypatch):
    out = tmp_path / "f.npy"

    def dies(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as killed:
        killed.setattr("vitrail.embed.save.write_array", dies)
        with pytest.raises(Killed):
            vitrail.embed(model, photos, out=out, **EXACT)
    assert out.with_suffix(".csv").exists()
    assert not out.exists()
    assert vitrail.embed(model, photos, out=out, resume=True, **EXACT).rows == 16
    assert np.load(out).shape == (16, 32)


def test_what_is_asked_otherwise_is_refused(model, photos, tmp_path):
    (tmp_path / "f.csv").write_text("mine")
    with pytest.raises(UsageError, match=r"f\.csv exists"):
        vitrail.embed(model, photos, out=tmp_path / "f.npy", **EXACT)
    assert (tmp_path / "f.csv").read_text() == "mine"
    with pytest.raises(UsageError, match=r"\.npy, \.npz, \.parquet"):
        vitrail.embed(model, photos, out=tmp_path / "f.csv", **EXACT)
    with pytest.raises(UsageError, match="tokn"):
        vitrail.embed(model, photos, feature="tokn", **EXACT)
    with pytest.raises(UsageError, match="-1"):
        vitrail.embed(model, photos, neighbours=-1, **EXACT)
    (tmp_path / "g.npz").write_text("no archive")
    with pytest.raises(UsageError, match="no result of ours"):
        vitrail.embed(model, photos, out=tmp_path / "g.npz", resume=True, **EXACT)


def test_the_features_on_the_command_line_are_those_of_the_function():
    assert Feature.__args__ == command.FEATURES


def test_the_order_of_pictures_does_not_change_who_is_near_whom():
    values = np.random.default_rng(1).normal(size=(30, 8)).astype(np.float32)
    order = random.Random(2).sample(range(30), 30)
    places, _ = nearest(values, 4, 8)
    moved, _ = nearest(values[order], 4, 8)
    for place, original in enumerate(order):
        assert [order[other] for other in moved[place]] == places[original].tolist()
