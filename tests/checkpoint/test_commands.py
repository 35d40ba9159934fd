"""Do inspect and convert say on the command line what the functions return?"""

import json

import pytest
from click.testing import CliRunner

from vitrail.checkpoint import container, inspect, save
from vitrail.checkpoint.writing import NAMES
from vitrail.cli.convert import FORMATS
from vitrail.cli.convert import command as convert_command
from vitrail.cli.inspect import command as inspect_command
from vitrail.errors import CheckpointError

from .tiny import CONFIGS, random_model


@pytest.fixture
def bare(tmp_path):
    save(random_model(CONFIGS["plain"]), tmp_path / "timm", "timm")
    tensors = container.read(tmp_path / "timm" / "model.safetensors").tensors
    container.write_safetensors(tmp_path / "bare.safetensors", tensors)
    return tmp_path / "bare.safetensors"


def run(command, *words):
    return CliRunner().invoke(command, [str(word) for word in words], catch_exceptions=False)


def test_inspect_prints_one_json_document_or_lines_for_people(bare):
    shown = run(inspect_command, bare, "--set", "num_attention_heads=3", "--json")
    document = json.loads(shown.stdout)
    assert document["schema_version"] == 1
    assert document["config"]["num_attention_heads"] == 3
    assert document["grid"] == [2, 2]
    lines = run(inspect_command, bare, "--set", "model.num_attention_heads=3").stdout
    assert "2 x 2 patches behind class" in lines
    assert "assumed:" in lines


def test_inspect_lists_problems_and_exits_with_4(bare):
    shown = run(inspect_command, bare)
    assert shown.exit_code == 4
    assert "PROBLEMS" in shown.stdout
    assert "num_attention_heads" in shown.stdout


def test_inspect_drafts_rules(bare):
    shown = run(inspect_command, bare, "--propose-rules")
    assert "[[rule]]" in shown.stdout
    assert "UNSURE" in shown.stdout


def test_convert_proves_itself_in_json_and_in_words(bare, tmp_path):
    shown = run(convert_command, bare, tmp_path / "out", "--to", "google", "--set", "num_attention_heads=3", "--json")
    document = json.loads(shown.stdout)
    assert document["tensors_equal"] is True
    assert document["logits_difference"] == {"formula": 0.0, "noise": 0.0}
    assert document["deviations"]
    words = run(convert_command, bare, tmp_path / "again", "--set", "num_attention_heads=3").stdout
    assert "bit for bit equal" in words
    assert inspect(tmp_path / "out").origin == "google"


def test_convert_takes_rules_of_ones_own(bare, tmp_path):
    draft = run(inspect_command, bare, "--propose-rules").stdout.replace("1e-05", "1e-06")
    (tmp_path / "mine.toml").write_text("\n".join(
        "num_attention_heads = 3" if line.startswith("num_attention_heads") else line for line in draft.splitlines()
    ))  # fmt: skip
    shown = run(convert_command, bare, tmp_path / "out", "--rules", tmp_path / "mine.toml", "--json")
    assert json.loads(shown.stdout)["source"]["origin"] == "drafted rules"


def test_a_refusal_leaves_nothing_behind(tmp_path):
    save(random_model(CONFIGS["pre-logits"]), tmp_path / "source")
    with pytest.raises(CheckpointError, match="pre-logits"):
        run(convert_command, tmp_path / "source", tmp_path / "target", "--to", "timm")
    assert not (tmp_path / "target").exists()


def test_the_command_offers_every_format():
    assert FORMATS == NAMES
