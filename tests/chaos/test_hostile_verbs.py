"""Does every verb that takes pictures survive the hostile ones, with the right answer under every name? (B1, A7)

One corpus is read by predict, embed, evaluate, explain, data check and train, each as a user starts it. The right
answer to a file is that of the model's own code for that file alone.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from chaos.figures import report
from chaos.untouched import tree
from images.hostile import write_corpus
from train.tiny import TINY

import vitrail
from vitrail.bulk.rows import item_name
from vitrail.config import ViTConfig
from vitrail.images.reading import REASONS, BadPicture
from vitrail.images.transforms import normalise, read
from vitrail.model.vit import VisionTransformer, create

pytestmark = pytest.mark.chaos
EXACT = ["--engine", "torch", "--precision", "exact"]
CONFIG = ViTConfig(
    hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, image_size=32, patch_size=8
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data/, the corpus: a class for every kind of trouble."""
    return tmp_path_factory.mktemp("hostile")


@pytest.fixture(scope="module")
def expected(place: Path) -> dict[str, frozenset[str]]:
    """For every file, as tables name it, what may become of it."""
    found = write_corpus(place / "data", mutants=4)
    assert len(found) >= 250
    return {item_name(f"data/{name}"): frozenset(words) for name, words in found.items()}


@pytest.fixture(scope="module")
def model(place: Path, expected: dict[str, frozenset[str]]) -> VisionTransformer:
    """A model whose classes are those of the corpus, saved as model/."""
    torch.manual_seed(3)
    labels = sorted(path.name for path in (place / "data").iterdir())
    made = create(vitrail.config.replace(CONFIG, num_classes=len(labels)), seed=0)
    made.labels = labels
    with torch.no_grad():
        for parameter in made.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    vitrail.save(made, place / "model")
    return made


@pytest.fixture(scope="module")
def answers(place: Path, model: VisionTransformer, expected: dict[str, frozenset[str]]) -> dict[str, Any]:
    """For every file by itself: its reason, or its probabilities and its class token."""
    found: dict[str, Any] = {}
    warnings.simplefilter("ignore")  # of Pillow, about broken EXIF blocks; pytest puts its own filters back
    for item in vitrail.images.listing.list_inputs([place / "data"]).items:
        name = item_name(os.path.relpath(str(item), place))
        try:
            pixels, _ = read(item, model.preprocess)
        except BadPicture as error:
            found[name] = error.reason
            continue
        with torch.inference_mode():
            images = normalise(pixels[None], model.preprocess)
            found[name] = model(images).softmax(-1)[0].numpy(), model.features(images)[0, 0].numpy()
    assert found.keys() == expected.keys()
    for name, answer in found.items():
        assert (answer if isinstance(answer, str) else "ok") in expected[name], name
    return found


@pytest.fixture(autouse=True)
def unchanged(place: Path, model: VisionTransformer) -> Any:
    """No verb changes a name, a byte or a time of what it reads."""
    before = tree(place / "data")
    yield
    assert tree(place / "data") == before


def run(place: Path, *arguments: str) -> str:
    """A command that ends well; its stdout."""
    done = subprocess.run(
        [sys.executable, "-m", "vitrail", *arguments], cwd=place, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def check(rows: list[tuple[str, str | None, Any]], answers: dict[str, Any], verb: str, right: Any) -> None:
    """One row per file, in order; its error is the file's, and so, by `right`, is what else it says."""
    assert [name for name, _, _ in rows] == sorted(answers, key=os.fsencode), verb
    for name, error, said in rows:
        answer = answers[name]
        if isinstance(answer, str):
            assert (error or "").partition(":")[0] == answer, (verb, name)
        else:
            assert not error, (verb, name, error)
            assert right(said, answer), (verb, name)
    bad = sum(error is not None and error != "" for _, error, _ in rows)
    report("hostile pictures", verb=verb, files=len(rows), errors=bad)


def is_the_answer(said: tuple[int, float], answer: Any) -> bool:
    """Whether a class and its probability are those of a picture."""
    index, probability = said
    return bool(abs(answer[0].max() - probability) < 1e-4 and abs(answer[0][index] - probability) < 1e-4)


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_predict(place, model, answers, suffix):
    run(place, "predict", "model", "data", "--out", f"rows.{suffix}", *EXACT)
    rows = read_rows(place / f"rows.{suffix}")
    told = [(row["path"], row["error"], (int(row["index"] or 0), float(row["probability"] or 0))) for row in rows]
    check(told, answers, f"predict, {suffix}", is_the_answer)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a table in any format."""
    if path.suffix == ".csv":
        with path.open(newline="") as file:
            return list(csv.DictReader(file))
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    return pytest.importorskip("pyarrow.parquet").read_table(path).to_pylist()


def test_predict_without_a_file(place, model, answers):
    lines = run(place, "predict", "model", "data", "--json", "--quiet", *EXACT).splitlines()
    rows = [json.loads(line) for line in lines]
    told = [(row["path"], row["error"], (row["index"], row["probability"])) for row in rows]
    check(told, answers, "predict, stdout", is_the_answer)


def test_embed(place, model, answers):
    run(place, "embed", "model", "data", "--out", "features.npz", "--neighbours", "3", *EXACT)
    with np.load(place / "features.npz") as found:
        rows = list(zip(found["path"].tolist(), found["error"].tolist(), found["features"], strict=True))
        places, paths = found["neighbours"], found["path"].tolist()
    check(rows, answers, "embed", lambda said, answer: np.abs(said - answer[1]).max() < 1e-3)
    for path, near in zip(paths, places.tolist(), strict=True):
        bad = isinstance(answers[path], str)
        assert near == [-1, -1, -1] if bad else all(not isinstance(answers[paths[one]], str) for one in near)


def test_evaluate(place, model, answers):
    run(place, "evaluate", "model", "data", "--out", "evaluated", "--max-bad", "0.99", "--draws", "10", *EXACT)
    rows = read_rows(place / "evaluated" / "predictions.csv")
    told = [(row["path"], row["error"], (int(row["index"] or 0), float(row["probability"] or 0))) for row in rows]
    check(sorted(told, key=lambda row: os.fsencode(row[0])), answers, "evaluate", is_the_answer)
    assert all(row["target"] == Path(row["path"]).parts[1] for row in rows if row["status"] == "ok")
    told_bad = {row["path"] for row in read_rows(place / "evaluated" / "bad_images.csv")}
    assert told_bad == {name for name, answer in answers.items() if isinstance(answer, str)}


def test_explain(place, model, answers):
    shown = run(place, "explain", "model", "data", "-m", "attention", "--format", "json", "--out", "why", "--json")
    rows = json.loads(shown)["images"]
    told = [(row["path"], row.get("error"), (row.get("label"), row.get("confidence"))) for row in rows]
    by_label = lambda said, answer: is_the_answer((model.labels.index(said[0]), said[1]), answer)  # noqa: E731
    check(told, answers, "explain", by_label)
    files = [path for row in rows for path in row.get("files", ())]
    assert len(set(files)) == len(files) == sum(not isinstance(answer, str) for answer in answers.values())


def test_data_check(place, model, answers):
    found = json.loads(run(place, "data", "check", "data", "--json", "--quiet"))
    assert found["pictures"] == len(answers)
    told = {one["path"]: one["reason"] for one in found["unreadable"]}
    assert told.keys() <= answers.keys()
    bad = {name: answer for name, answer in answers.items() if isinstance(answer, str)}
    assert {name: told.get(name) for name in bad} == bad
    assert set(told) - set(bad) == set()
    report("hostile pictures", verb="data check", files=found["pictures"], errors=len(told))


def test_train(place, model, answers):
    settings = [f"--set={name}={json.dumps(value)}" for name, value in TINY.items() if name != "train.epochs"]
    more = ["--epochs", "1", "--max-bad", "0.99", "--preset", "none", "--set", "data.val_share=0.0", "--quiet"]
    run(place, "train", "data", "--out", "run", *settings, *more)
    told = {row["path"]: row["reason"].partition(":")[0] for row in read_rows(place / "run" / "bad_images.csv")}
    bad = {name: answer for name, answer in answers.items() if isinstance(answer, str)}
    assert told == bad
    assert set(told.values()) <= REASONS.keys()
    report("hostile pictures", verb="train", files=len(answers), errors=len(told))
