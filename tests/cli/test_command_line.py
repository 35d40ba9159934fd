"""What a person meets at the prompt: speed, help, errors, exit codes."""

import errno
import importlib
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from vitrail.cli import COMMANDS, environment_problem, vitrail
from vitrail.errors import ConfigError, did_you_mean


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


@pytest.mark.parametrize("typed", [("--verbose", "trace", "nothing-like-this"), ("trace", "no-such", "--verbose")])
def test_the_traceback_is_shown_on_request_wherever_it_is_made(typed: tuple[str, ...]) -> None:
    result = run(*typed)
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


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("b/16", "Did you mean B/16?"),
        ("lr", "Did you mean train.lr?"),
        ("train.learning_rate", "Did you mean train.lr?"),
        ("train.bs", "Did you mean train.batch_size?"),
        ("model.batch_size", "Did you mean train.batch_size?"),
        ("xyzzy", "Known: B/16, train.batch_size, train.lr."),
    ],
)
def test_the_word_that_was_meant_is_found(said: str, meant: str) -> None:
    assert did_you_mean(said, ["B/16", "train.lr", "train.batch_size"]) == meant


def test_many_known_words_are_told_by_their_kinds() -> None:
    assert did_you_mean("xyzzy", [f"{kind}.{n}" for kind in ("data", "train") for n in range(20)]) == (
        "Known: data.*, train.*."
    )


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device", "rows.csv"),
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."),
    ],
)
def test_what_the_machine_lacks_is_no_bug_of_ours(error: Exception) -> None:
    problem = environment_problem(error)
    assert problem is not None
    assert problem.exit_code == 5
    assert len(str(problem).splitlines()) == 3


@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), RuntimeError("shapes differ")])
def test_any_other_error_keeps_its_traceback(error: Exception) -> None:
    assert environment_problem(error) is None
