"""vitrail predict as a user meets it: what it prints and writes, its exit codes, and what it never imports."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from predict.conftest import photo

from vitrail.cli import many, vitrail
from vitrail.engines.base import EngineName, Precision

EXACT = ["--engine", "openvino", "--precision", "exact"]


@pytest.fixture
def predict(checkpoint, photos, tmp_path, monkeypatch):
    """Runs the command in a folder that has photos/."""
    pytest.importorskip("openvino", reason="the extra `fast` is not installed")
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, **options: object) -> Result:
        return CliRunner().invoke(vitrail, ["predict", checkpoint, *arguments, *EXACT], **options)

    return run


def code(result: Result) -> int:
    """The exit code `vitrail` would give."""
    return getattr(result.exception, "exit_code", result.exit_code)


def test_without_out_every_file_is_a_line(predict):
    result = predict("photos", "--top", "2")
    lines = result.stdout.splitlines()
    assert code(result) == 0, result.stderr
    assert len(lines) == 14
    assert lines[0].startswith("photos/a/01.png\t")
    assert lines[0].count("%") == 2
    assert any(line.startswith("photos/b/empty.png\tempty: ") for line in lines)
    assert "Engine: openvino, exact" in result.stderr


def test_json_is_a_line_of_json_per_file_and_nothing_else(predict):
    result = predict("photos", "--json", "--quiet")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["schema_version"] for row in rows] == [1] * 14
    assert [row["path"] for row in rows] == sorted(row["path"] for row in rows)
    assert result.stderr == ""


def test_a_list_on_stdin_a_manifest_and_a_pattern_name_the_same_files(predict, tmp_path):
    names = [f"photos/a/{number:02}.png" for number in range(1, 12, 2)]
    (tmp_path / "list.csv").write_text("path\n" + "\n".join(names))
    from_pattern = predict("photos/a/*.png").stdout
    assert len(from_pattern.splitlines()) == 6
    assert predict("-", input="\n".join(names)).stdout == from_pattern
    assert predict("-", input="\0".join(names)).stdout == from_pattern
    assert predict("list.csv").stdout == from_pattern


@pytest.mark.parametrize(
    ("options", "expected"),
    [([], 0), (["--strict"], 6), (["--max-bad", "1"], 3), (["--max-bad", "0.1"], 3), (["--max-bad", "0.2"], 0)],
)
def test_exit_codes_say_what_became_of_bad_files(predict, tmp_path, options, expected):
    result = predict("photos", "--out", "rows.csv", *options)
    assert code(result) == expected
    with (tmp_path / "rows.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 14  # whatever the code
    assert code(predict("photos", "--out", "rows.csv", "--resume", *options)) == expected  # and once more: it is done


def test_nothing_but_bad_files_is_a_problem_of_the_data(predict):
    assert code(predict("photos/b/empty.png")) == 3
    assert code(predict("nowhere/*.png")) == 3
    assert code(predict("nowhere.png")) == 3


def test_the_summary_counts_errors_by_reason(predict):
    shown = predict("photos", "--out", "rows.csv").stdout
    assert shown == "rows.csv: 14 rows, of which errors: 1 corrupt, 1 empty\n"
    (summary,) = [json.loads(predict("photos", "--out", "rows.jsonl", "--json").stdout)]
    assert summary == {"schema_version": 1, "out": "rows.jsonl", "rows": 14, "errors": {"corrupt": 1, "empty": 1}}


def test_a_dry_run_and_the_settings_open_no_model(predict, tmp_path, monkeypatch):
    monkeypatch.setattr("vitrail.engines.for_model.engine_for", lambda *_: pytest.fail("a model was opened"))
    assert predict("photos", "--out", "rows.csv", "--dry-run").stdout == "14 files\n"
    shown = predict("photos", "--print-config", "--set", "data.workers=3").stdout
    assert "data.workers" in shown
    assert "--set data.workers=3" in shown
    assert [path.name for path in tmp_path.iterdir()] == ["photos"]


def test_names_that_could_move_a_cursor_are_escaped(predict, tmp_path):
    photo(1).save(tmp_path / "photos" / "new\nline\x1b[31m.png")
    assert "photos/new\\nline\\x1b[31m.png\t" in predict("photos").stdout


def test_the_options_are_those_of_the_engines():
    assert EngineName.__args__ == many.ENGINES
    assert Precision.__args__ == many.PRECISIONS


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None  # importing it is an ImportError
sys.argv = ["vitrail", "predict", *sys.argv[1:]]
from vitrail.cli import main
main()
"""


def test_a_known_model_predicts_where_torch_cannot_be_imported(predict, checkpoint, tmp_path):
    first = predict("photos")
    assert code(first) == 0
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, checkpoint, "photos", *EXACT],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ.copy(),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == first.stdout
    assert "Chosen before" in done.stderr


def test_the_folder_does_not_change_by_a_byte(predict, tmp_path):
    def tree() -> dict[Path, tuple[int, bytes]]:
        files = sorted(path for path in (tmp_path / "photos").rglob("*") if path.is_file())
        return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in files}

    before = tree()
    predict("photos", "--out", "rows.parquet")
    predict("photos", "--set", "data.truncated=load", "--set", "data.scaled=true")
    assert tree() == before
