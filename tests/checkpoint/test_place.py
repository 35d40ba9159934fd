"""Does a word stand for the model a user means?"""

import pytest
import torch
from click.testing import CliRunner

from vitrail.checkpoint import convert, inspect, load, place, save
from vitrail.cli.inspect import command as inspect_command
from vitrail.cli.model_argument import model_from_arguments
from vitrail.errors import CheckpointError, UsageError

from .tiny import CONFIGS, picture, random_model


@pytest.fixture
def demo(tmp_path, monkeypatch):
    """A tiny demo model inside the package, and an empty working directory."""
    monkeypatch.setattr(place, "DEMO_MODEL", tmp_path / "package" / "demo_model")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    model = random_model(CONFIGS["plain"])
    save(model, place.DEMO_MODEL)
    return model


def test_demo_is_the_model_inside_the_package_for_every_command(demo):
    x = picture(demo.config)
    assert torch.equal(load("demo")(x), demo(x))
    settings, build = model_from_arguments("demo", {}, None, ())
    assert torch.equal(build(allocate=True)(x), demo(x))
    assert settings.records["model"] == demo.config
    assert "8 x 8 px" in CliRunner().invoke(inspect_command, ["demo"], catch_exceptions=False).stdout


def test_a_folder_called_demo_is_named_by_its_path(demo, tmp_path):
    other = random_model(CONFIGS["layer scale"])
    save(other, tmp_path / "here" / "demo")
    assert load("demo").config == demo.config
    assert load("./demo").config == other.config
    assert load(tmp_path / "here" / "demo").config == other.config


def test_demo_converts_into_a_folder_of_the_same_name(demo, tmp_path):
    assert convert("demo", "demo", "timm").tensors_equal
    assert (tmp_path / "here" / "demo" / "config.json").exists()
    with pytest.raises(UsageError, match="both source and target"):
        convert("demo", place.DEMO_MODEL)


def test_a_package_without_the_demo_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(place, "DEMO_MODEL", tmp_path / "nothing")
    with pytest.raises(CheckpointError, match="without its demo model"):
        load("demo")


def test_a_run_directory_is_its_best_model_and_says_which(tmp_path):
    run = tmp_path / "run"
    (run / "weights").mkdir(parents=True)
    (run / "run.json").write_text('{"status": "running"}')
    with pytest.raises(CheckpointError, match="first epoch"):
        load(run)
    last, best = random_model(CONFIGS["plain"]), random_model(CONFIGS["plain"], seed=1)
    save(last, run / "weights" / "last")
    assert torch.equal(load(run)(picture(last.config)), last(picture(last.config)))
    save(best, run / "weights" / "best")
    assert torch.equal(load(run)(picture(best.config)), best(picture(best.config)))
    assert inspect(run).path == str(run / "weights" / "best")
