"""vitrail evaluate at the prompt: a table, a document, exit codes."""

import json
import os

import pytest
from click.testing import CliRunner

from vitrail.cli import vitrail
from vitrail.errors import DataError, SomeInputsBad, UsageError

FAST = ("--engine", "torch", "--precision", "exact", "--draws", "20", "--quiet")


def evaluated(*arguments):
    return CliRunner().invoke(vitrail, ["evaluate", *map(os.fspath, arguments), *FAST])


def test_the_table_and_the_document_say_the_same(checkpoint, data, tmp_path):
    shown = evaluated(checkpoint, data, "--out", tmp_path / "one")
    assert shown.exit_code == 0, shown.output
    document = json.loads(evaluated(checkpoint, data, "--out", tmp_path / "two", "--json").stdout)
    assert f"{document['values']['top1']['value']:.2%}" in shown.output
    assert "31 pictures of 3 classes, and 2 that cannot be read" in shown.output
    assert str(tmp_path / "one" / "report.html") in shown.output
    assert document["out"] == str(tmp_path / "two")
    assert document["cost"]["engine"] == "torch"
    assert {path.name for path in (tmp_path / "one").iterdir()} == {
        *("report.html", "metrics.json", "predictions.csv", "per_class.csv", "confusion.csv", "bad_images.csv", "plots")
    }


def test_without_out_every_report_gets_a_folder_of_its_own(checkpoint, data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert evaluated(checkpoint, data).exit_code == 0
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {"evaluate", "evaluate-2"}


def test_a_dry_run_writes_nothing(checkpoint, data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = evaluated(checkpoint, data, "--dry-run")
    assert result.output.splitlines()[-1] == "33 pictures of all, 3 classes"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--strict"], SomeInputsBad),
        (["--max-bad", "1"], DataError),
        (["--split", "test"], UsageError),
        (["--rename", "red"], UsageError),
        (["--rename", "red=green", "--remap"], UsageError),
        (["--rename", "red=green"], DataError),  # two classes would be one
    ],
)
def test_what_is_asked_wrongly_or_found_bad_has_an_exit_code(checkpoint, data, tmp_path, arguments, error):
    result = evaluated(checkpoint, data, "--out", tmp_path / "report", *arguments)
    assert isinstance(result.exception, error)


def test_settings_have_origins(checkpoint, data):
    result = evaluated(checkpoint, data, "--set", "engine.batch_size=3", "--print-config")
    assert any(
        line.split() == ["engine.batch_size", "3", "--set", "engine.batch_size=3"]
        for line in result.output.splitlines()
    )
