"""What a person meets at the prompt: speed, help, errors, exit codes."""

import importlib
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from vitrail.cli import COMMANDS, vitrail
from vitrail.errors import ConfigError


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "vitrail", *arguments],
        capture_output=True,
        text=True,
        env=os.environ | environment,
        check=False,
    )


def test_help_imports_no_torch() -> None:
    code = "import sys; from vitrail.cli import vitrail; vitrail.main(['--help'], standalone_mode=False); "
    code += "print({'torch', 'numpy', 'PIL', 'rich', 'msgspec', 'matplotlib'} & set(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip().endswith("set()")


def test_help_answers_within_150_milliseconds() -> None:
    # Processor time, best of five: on a machine busy with other things the wall clock measures those.
    def seconds() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert run("--help").returncode == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(seconds() for _ in range(5)) < 0.150


@pytest.mark.parametrize("name", COMMANDS)
def test_the_summary_in_the_list_is_the_commands_own_first_sentence(name: str) -> None:
    command = importlib.import_module(COMMANDS[name][0]).command
    assert (command.help or "").split("\n")[0] == COMMANDS[name][1]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str) -> None:
    result = CliRunner().invoke(vitrail, [name, "--help"])
    assert result.exit_code == 0
    assert "Usage:" in result.output


def test_an_unknown_command_names_the_nearest_and_exits_2() -> None:
    result = run("inspcet")
    assert result.returncode == 2
    assert "Did you mean inspect?" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 3


def test_an_unknown_setting_names_the_nearest_and_exits_2() -> None:
    result = run("trace", "B/16", "--set", "model.image_sise=384")
    assert result.returncode == 2
    assert "model.image_size" in result.stderr
    assert "Traceback" not in result.stderr


def test_an_impossible_image_size_names_the_nearest_possible_ones() -> None:
    result = run("trace", "B/16", "--set", "model.image_size=225")
    assert result.returncode == 2
    assert "224 or 240" in result.stderr


def test_the_traceback_is_shown_only_on_request() -> None:
    result = run("--verbose", "trace", "nothing-like-this")
    assert result.returncode == 2
    assert "Traceback" in result.stderr


def test_print_config_says_where_each_value_came_from(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[model]\nhidden_dropout_prob = 0.1\nnum_register_tokens = 4\n")
    shown = run(
        *("trace", "Ti/16", "--config", str(file), "--set", "model.num_register_tokens=2", "--classes", "7"),
        "--print-config",
        VITRAIL_MODEL_LAYER_NORM_EPS="1e-5",
    ).stdout
    origins = {line.split()[0]: line for line in shown.splitlines()}
    assert origins["model.hidden_size"].split()[1:] == ["192", "Ti/16"]
    assert origins["model.hidden_dropout_prob"].endswith(f"0.1    --config {file}") or "0.1" in shown
    assert "--set model.num_register_tokens=2" in origins["model.num_register_tokens"]
    assert "environment VITRAIL_MODEL_LAYER_NORM_EPS" in origins["model.layer_norm_eps"]
    assert origins["model.num_classes"].split()[1:] == ["7", "flag"]
    assert origins["model.qkv_bias"].endswith("default")


def test_a_closed_pipe_is_no_error() -> None:
    shown = subprocess.run(
        f"{sys.executable} -m vitrail models | head -n 1", shell=True, capture_output=True, text=True, check=False
    )
    assert "Traceback" not in shown.stderr
    assert "name" in shown.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(shell: str) -> None:
    assert "_VITRAIL_COMPLETE" in run("completion", shell).stdout


def test_models_as_json_is_one_document() -> None:
    document = json.loads(run("models", "--json").stdout)
    assert document["schema_version"] == 1
    assert {"name": "B/16", "parameters": 86567656}.items() <= document["models"][4].items()


def test_errors_survive_the_trip_between_processes() -> None:
    import pickle

    error = pickle.loads(pickle.dumps(ConfigError("found", "expected", "fix")))
    assert (error.found, error.expected, error.fix, error.exit_code) == ("found", "expected", "fix", 2)
