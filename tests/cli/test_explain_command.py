"""vitrail explain at the prompt: files, rows, errors, exit codes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from PIL import Image

from vitrail.cli.explain import command
from vitrail.errors import SomeInputsBad, UsageError

MODEL = ["Ti/16", "--set", "model.image_size=32", "--set", "model.num_hidden_layers=2", "--set", "model.num_classes=3"]


def explain(*arguments: Any) -> Result:
    return CliRunner().invoke(command, [*MODEL[:1], *map(str, arguments), *MODEL[1:]], catch_exceptions=False)


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    for name, colour in (("b.png", "red"), ("a.jpg", "blue"), ("sub/c.png", "green")):
        path = tmp_path / "pictures" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 30), colour).save(path)
    return tmp_path / "pictures"


def test_a_folder_gives_a_page_and_an_overlay_per_picture_and_method(pictures: Path, tmp_path: Path) -> None:
    result = explain(pictures, "-m", "rollout", "-m", "grad-cam", "--out", tmp_path / "out")
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == 3
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert [name for name in names if name.endswith(".html")] == ["0000-a.html", "0001-b.html", "0002-c.html"]
    assert "0002-c.grad_cam.png" in names
    assert len(names) == 3 * 4


def test_without_out_every_run_gets_a_folder_of_its_own(pictures: Path, monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("runs/explain", "runs/explain-2"):
        assert folder + "/" in explain(pictures / "b.png").stdout
        assert len(list(Path(folder).iterdir())) == 3


def test_json_is_one_document_with_a_row_per_picture(pictures: Path, tmp_path: Path) -> None:
    (pictures / "d.jpg").write_bytes(b"")
    result = explain(pictures, "--json", "--scores", "--class", "2", "--out", tmp_path / "out", "--format", "npz")
    rows = json.loads(result.stdout)["images"]
    assert [row["status"] for row in rows] == ["ok", "ok", "error", "ok"]
    assert rows[0]["target"] == 2
    measures = {"deletion", "insertion", "road", "total"}
    assert set(rows[0]["views"]["relevance"]["scores"]) == set(rows[0]["random_order"]) == measures
    assert -1 <= rows[0]["views"]["relevance"]["agreement_with_shuffled"] <= 1
    assert rows[2]["error"].startswith("empty")
    assert [Path(path).name for path in rows[3]["files"]] == ["0003-c.npz"]


def test_a_bad_picture_is_a_row_and_an_exit_code_only_with_strict(pictures: Path, tmp_path: Path) -> None:
    (pictures / "d.jpg").write_bytes(b"")
    assert explain(pictures, "--out", tmp_path / "out").exit_code == 0
    with pytest.raises(SomeInputsBad, match="1 of 4"):
        explain(pictures, "--strict", "--out", tmp_path / "out2")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-m", "rolout"], "Did you mean rollout"),
        (["-m", "rollout", "--layer", 1], "takes no option 'layer'"),
        (["-m", "attention", "--query", "1"], "Row and column"),
        (["-m", "attention", "--query", "9,9"], "rows 0 to 1"),
        (["-o", "steps"], "sets nothing"),
        (["--class", "cat"], "no class 'cat'"),
        (["--format", "gif"], "no format 'gif'"),
        (["--compare", "--scores"], "takes no method options"),
    ],
)
def test_what_cannot_be_done_is_said_and_nothing_is_written(
    pictures: Path, tmp_path: Path, arguments: list[Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        explain(pictures, *arguments, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_options_of_methods_arrive(pictures: Path, tmp_path: Path) -> None:
    def values(*arguments: Any) -> Any:
        explain(pictures / "a.jpg", "-m", "attention", *arguments, "--out", tmp_path / "out", "--format", "json")
        return json.loads((tmp_path / "out" / "0000-a.json").read_text())["views"]["attention"]["values"]

    assert values("--layer", 0, "--head", 2, "--query", "1,0") != values("--layer", 0, "--head", 1, "--query", "1,0")
    assert values("-o", "fuse=max") != values("-o", "fuse=mean")


def test_compare_prints_methods_best_first_with_intervals(pictures: Path) -> None:
    result = explain(pictures, "--compare", "-m", "rollout", "-m", "layer_cam")
    lines = result.stdout.splitlines()
    assert {line.split()[0] for line in lines[1:]} == {"rollout", "layer_cam", "random"}
    totals = [float(re.search(r"[+-]\d\.\d+", line)[0]) for line in lines[1:]]  # type: ignore[index]
    assert totals == sorted(totals, reverse=True)
    out = pictures.parent / "compared"
    told = json.loads(explain(pictures, "--compare", "-m", "rollout", "--json", "--out", str(out)).stdout)
    assert json.loads((out / "ranking.json").read_text()) == told
    ranking = told["ranking"]
    assert {row["method"] for row in ranking} == {"rollout", "random"}
    assert {"mean", "low", "high"} == set(ranking[0]["over_random"])
