"""vitrail data check: what a person reads, what a program reads, and what a shell is told."""

import json
import os

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from vitrail.cli import vitrail
from vitrail.errors import DataError, SomeInputsBad


def put(path, seed):
    path.parent.mkdir(parents=True, exist_ok=True)
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), np.uint8)
    Image.fromarray(coarse).resize((96, 72), Image.Resampling.BICUBIC).save(path)


@pytest.fixture
def data(tmp_path):
    for seed in range(8):
        put(tmp_path / "data" / ("train", "val")[seed % 2] / ("cat", "dog")[seed // 4] / f"{seed}.png", seed)
    return tmp_path / "data"


def checked(*arguments):
    return CliRunner().invoke(vitrail, ["data", "check", *map(os.fspath, arguments), "--quiet"])


def test_a_clean_set_is_told_in_five_lines(data):
    result = checked(data, "--strict")
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert [line.split() for line in lines[:3]] == [["class", "train", "val"], ["cat", "2", "2"], ["dog", "2", "2"]]
    assert lines[-1] == "Nothing is wrong."


def test_leaks_contradictions_and_unreadable_files_are_told_once_and_strict_is_6(data):
    put(data / "val" / "cat" / "copy.png", 0)  # 0 is train/cat
    put(data / "train" / "dog" / "wrong.png", 2)  # 2 is train/cat
    (data / "val" / "dog" / "text.png").write_text("no picture")
    result = checked(data)
    assert result.exit_code == 0
    for line in ("1 cannot be read", "1 in two splits: the test is not unseen", "1 in two classes: one label is wrong"):
        assert line in result.output
    assert result.output.count("copy.png") == result.output.count("wrong.png") == 1
    assert "unknown_format" in result.output
    strict = checked(data, "--strict").exception
    assert isinstance(strict, SomeInputsBad)
    assert strict.found == "Unreadable pictures: 1; the same in two splits: 1; in two classes: 1."


def test_json_is_one_document_with_every_finding(data):
    for number in range(12):
        put(data / "train" / "cat" / f"same{number}.png", 0)
    text, document = checked(data).output, json.loads(checked(data, "--json").output)
    assert document["schema_version"] == 1
    (group,) = document["duplicates"]
    assert len(group["paths"]) == 13
    assert "and 10 more" in text


def test_more_examples_than_fit_are_counted(data):
    for number in range(11):
        (data / "train" / "cat" / f"bad{number:02}.png").write_text("no")
    output = checked(data).output
    assert "11 cannot be read" in output
    assert "and 3 more (--json lists all)" in output


@pytest.mark.parametrize(("most", "fine"), [("2", True), ("1", False), ("0.5", True), ("0.1", False)])
def test_max_bad_is_a_number_or_a_share(data, most, fine):
    for number in range(2):
        (data / "train" / "cat" / f"bad{number}.png").write_text("no")
    result = checked(data, "--max-bad", most)
    assert (result.exit_code == 0) is fine
    if not fine:
        assert isinstance(result.exception, DataError)
        assert result.exception.found == "2 of 10 pictures cannot be read."


def test_names_cannot_write_to_the_terminal(data):
    (data / "train" / "cat" / "red\x1b[31m.png").write_text("no")
    assert "\x1b" not in checked(data).output


def test_data_that_is_not_there_is_3(tmp_path):
    assert isinstance(checked(tmp_path / "nothing").exception, DataError)
