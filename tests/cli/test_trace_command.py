"""vitrail trace, as typed."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import vitrail as package
from vitrail.cli import vitrail
from vitrail.cli.trace import show
from vitrail.errors import VitrailError

SAMPLES = Path(__file__).parents[2] / "src" / "vitrail" / "samples"


def trace(*arguments: str) -> Result:
    result = CliRunner().invoke(vitrail, ["trace", *arguments])
    if result.exception and not isinstance(result.exception, VitrailError):
        raise result.exception
    return result


def test_without_arguments_it_walks_the_documents_model() -> None:
    shown = trace("--classes", "100").output
    for shape in ("32x3x224x224", "32x768x14x14", "32x196x768", "32x197x768", "32x12x197x64", "32x12x197x197"):
        assert shape in shown
    assert "32x3x224x224 -> 32x100: 86,466,148 parameters" in shown
    assert "ViTPooler: dense, tanh" in shown
    assert "blocks.1-11" in shown
    assert "blocks.1.norm1" not in shown


def test_all_unfolds_every_block() -> None:
    assert trace("Ti/16", "--all").output.count(".attn.scores") == 12


def test_a_picture_gives_live_numbers_and_batch_one() -> None:
    stages = json.loads(trace("mu/16", str(SAMPLES / "cat.jpg"), "--json").output)["stages"]
    by_name = {stage["name"]: stage for stage in stages}
    assert by_name["images"]["output"] == [1, 3, 224, 224]
    assert -1 <= by_name["images"]["live"]["min"] < by_name["images"]["live"]["max"] <= 1
    assert "min, max" in trace("mu/16", str(SAMPLES / "cat.jpg")).output


def test_json_is_one_document_with_totals() -> None:
    document = json.loads(trace("B/16", "--batch", "2", "--classes", "100", "--json").output)
    assert document["schema_version"] == 1
    assert document["parameters"] == 85798656 + 769 * 100
    assert document["stages"][-1]["output"] == [2, 100]
    assert document["config"]["hidden_size"] == 768


def test_a_hybrid_shows_the_stages_of_its_stem() -> None:
    shown = trace("R26+S/32").output
    for stage in ("stem.root", "stem.pool", "stem.stages.0", "stem.stages.3", "32x2048x7x7"):
        assert stage in shown


def test_brackets_in_a_formula_are_not_taken_for_markup() -> None:
    assert "[learned tokens; patches]" in trace("mu/16").output


def test_a_missing_file_is_said_to_be_missing() -> None:
    result = trace("no-such.safetensors")
    assert "There is no file no-such.safetensors" in str(result.exception)


def test_settings_reach_the_model() -> None:
    shown = trace("Ti/16", "--set", "model.image_size=[64, 96]", "--set", "model.num_channels=1").output
    assert "32x1x64x96" in shown


def test_a_narrow_terminal_gets_every_stage_in_lines_that_fit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    walk = package.trace("mu/16", SAMPLES / "cat.jpg")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    show(walk, every_block=False)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines[:-1] if line[:1].strip()] == [stage.name for stage in walk.stages]
    block = lines[next(n for n, line in enumerate(lines) if line.startswith("blocks.0.attn.q")) :]
    assert block[0].split()[1:] == ["1x197x32", "->", "1x2x197x16"]
    assert block[5].strip() == "Hugging Face: ViTSelfAttention.query; Google: Attention/query"
