"""What the doctor sees, what it advises, and what it leaves alone."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result
from packaging.requirements import Requirement

import vitrail
from vitrail.cli import vitrail as cli
from vitrail.doctor import engines, findings, machine, packages, places, variables
from vitrail.doctor.report import Attempt, Diagnosis, Extra, Machine, Package, Place

HERE = Machine(
    system="Linux", processor="?", abilities=("AVX2",), cores=8, quota=None, memory=None, free_memory=None, gpus=()
)
CACHE = Place(use="cache", path="/nowhere", writable=True, free=None)


def doctor(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(cli, ["doctor", *arguments], env=environment, catch_exceptions=False)


def said(found: Any) -> str:
    return "\n".join(f"{one.severity}: {one.found} {one.expected} {one.fix}" for one in found)


def with_(**changes: Any) -> Machine:
    return msgspec.structs.replace(HERE, **changes)


def test_it_imports_no_torch_unless_engines_are_to_be_tried() -> None:
    code = "import sys; from vitrail.doctor.examine import doctor; doctor(); print('torch' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "False"


def test_the_python_verb_and_the_json_document_say_the_same() -> None:
    found: Diagnosis = vitrail.doctor()
    document = json.loads(doctor("--json").output)
    assert document["schema_version"] == 1
    assert document["healthy"] is (not found.problems)
    assert document["machine"]["cores"] == found.machine.cores >= 1
    assert [one["name"] for one in document["packages"]] == [one.name for one in found.packages]
    assert found.machine.memory is None or found.machine.memory > found.machine.free_memory > 0  # type: ignore[operator]


def test_every_extra_is_explained_and_none_is_forgotten() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert sorted(packages.GIVES) == sorted(set(project["optional-dependencies"]) - set(packages.FOR_DEVELOPERS))


def test_the_libraries_are_those_of_the_package_metadata() -> None:
    torch = next(one for one in packages.needed() if one.name == "torch")
    assert torch.fits
    assert torch.installed == packages.metadata.version("torch")
    assert "pytest" not in {one.name for one in packages.needed()}
    fast = next(one for one in packages.extras() if one.name == "fast")
    assert {"openvino", "onnxruntime"} <= {one.name for one in fast.packages}


def test_a_missing_or_old_library_is_a_problem_with_the_command_that_mends_it() -> None:
    old = packages.package(Requirement("click>=999"))
    gone = packages.package(Requirement("no-such-library>=2"))
    assert not old.fits
    assert old.installed
    assert gone.installed is None
    advice = said(findings.of_packages([old, gone], []))
    assert "problem: There is click" in advice
    assert "pip install 'click>=999'" in advice
    assert "There is no no-such-library" in advice


def test_an_extra_that_is_not_here_is_no_finding_but_one_of_the_wrong_version_is() -> None:
    needed = [Package(name="torch", wanted="", installed="2", fits=True)]
    gone = Extra(name="hub", gives="models", packages=(Package(name="h", wanted=">=1", installed=None, fits=False),))
    old = Extra(name="hub", gives="models", packages=(Package(name="h", wanted=">=1", installed="0.9", fits=False),))
    assert said(findings.of_packages(needed, [gone])) == ""
    assert said(findings.of_packages(needed, [old])).startswith("hint: There is h 0.9.")


def test_without_package_metadata_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(name: str) -> None:
        raise packages.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(packages.metadata, "requires", nowhere)
    assert packages.needed() == packages.extras() == ()
    assert "without being installed" in said(findings.of_packages((), ()))


@pytest.mark.parametrize(
    ("seen", "environment", "words"),
    [
        (with_(quota=2.0), {}, "export OMP_NUM_THREADS=2"),
        (HERE, {"OMP_NUM_THREADS": "1"}, "unset OMP_NUM_THREADS"),
        (with_(gpus=("H100",)), {}, "There is a GPU (H100), and torch 2.13.0+cpu cannot use it"),
        (with_(free_memory=2**29), {}, "0.5 GB of memory are free"),
    ],
)
def test_a_machine_slower_than_it_looks_gets_a_hint(seen: Machine, environment: dict[str, str], words: str) -> None:
    assert said(findings.of_machine(HERE, "2.13.0+cpu", {})) == ""
    advice = said(findings.of_machine(seen, "2.13.0+cpu", environment))
    assert words in advice
    assert "problem" not in advice


def test_a_gpu_torch_was_built_for_is_no_finding() -> None:
    assert said(findings.of_machine(with_(gpus=("H100",)), "2.13.0+cu130", {})) == ""


def test_the_quota_and_the_name_of_a_gpu_are_read_as_the_system_writes_them(tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    assert machine.quota(tmp_path) == 1.5
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert machine.quota(tmp_path) is None
    assert machine.quota(tmp_path / "nowhere") is None
    (tmp_path / "information").write_text("Model: \t\t NVIDIA H100\nIRQ: 7\n")
    assert machine.nvidia_name(tmp_path / "information") == "NVIDIA H100"


def test_a_folder_is_measured_without_being_made(tmp_path: Path) -> None:
    (tmp_path / "cache" / "deep").mkdir(parents=True)
    (tmp_path / "cache" / "deep" / "file").write_bytes(bytes(1000))
    (tmp_path / "cache" / "link").symlink_to("/")
    used = places.place("cache", tmp_path / "cache", used=True).used
    assert used is not None
    assert 1000 <= used < 1100
    planned = places.place("runs", tmp_path / "not" / "yet")
    assert planned.writable
    assert planned.free
    assert not (tmp_path / "not").exists()


def test_a_folder_that_cannot_be_written_to_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    blocked = places.place("runs", tmp_path / "file" / "runs")
    assert not blocked.writable
    assert "--out" in said(findings.of_places([blocked, CACHE]))
    full = Place(use="cache", path="/nowhere", writable=True, free=10)
    assert "hint: 0.0 GB are free for cache" in said(findings.of_places([full]))


def test_a_cache_that_others_may_write_to_is_pointed_out(tmp_path: Path) -> None:
    (tmp_path / "engines").mkdir(mode=0o777)
    (tmp_path / "engines").chmod(0o777)
    cache = places.place("cache", tmp_path)
    assert "chmod go-w" in said(findings.of_places([cache]))
    (tmp_path / "engines").chmod(0o700)
    assert said(findings.of_places([cache])) == ""


def test_variables_are_shown_with_their_effect_and_secrets_without_their_value() -> None:
    given = {"VITRAIL_TRAIN_LR": "0.1", "HF_TOKEN": "hf_secret", "PATH": "/bin"}
    shown = {one.name: one for one in variables.variables(given)}
    assert set(shown) == {"VITRAIL_TRAIN_LR", "HF_TOKEN"}
    assert shown["VITRAIL_TRAIN_LR"].effect == "sets train.lr"
    assert "secret" not in str(shown["HF_TOKEN"])


def test_misspelt_and_impossible_variables_are_problems() -> None:
    assert "VITRAIL_TRAIN_EPOCHS" in said(variables.misspelt({"VITRAIL_TRAIN_EPOCS": "3"}))
    assert "learning" not in said(variables.impossible({"VITRAIL_TRAIN_EPOCHS": "3"}))
    assert "problem: epochs is 'many'" in said(variables.impossible({"VITRAIL_TRAIN_EPOCHS": "many"}))


def test_a_problem_exits_with_5_and_stands_above_hints() -> None:
    result = doctor(VITRAIL_TRAIN_EPOCS="3", OMP_NUM_THREADS="1")
    assert result.exit_code == 5
    assert "PROBLEM: The environment sets VITRAIL_TRAIN_EPOCS" in result.output
    assert "VITRAIL_TRAIN_EPOCHS" in result.output


def test_torch_answers_for_a_tiny_model() -> None:
    exact, half = engines.try_engine("torch")
    assert exact.works, exact.reason
    assert exact.error is not None
    assert exact.error < 1e-4
    assert half.precision == "balanced"


def test_an_engine_is_tried_in_a_process_that_may_die(monkeypatch: pytest.MonkeyPatch) -> None:
    for command, reason in (
        ("exit 3", "exit code 3"),
        ("kill -ILL $$", "died of SIGILL"),
        ("echo no >&2; exit 1", "no"),
    ):
        monkeypatch.setattr(engines, "command", lambda name, command=command: ["sh", "-c", command])
        (attempt,) = engines.in_a_child("torch")
        assert not attempt.works
        assert reason in attempt.reason


def test_an_engine_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "command", lambda name: ["sleep", "60"])
    monkeypatch.setattr(engines, "SECONDS", 0.2)
    assert "no answer within" in engines.in_a_child("torch")[0].reason


def test_only_a_broken_torch_is_a_problem_and_an_absent_engine_is_nothing() -> None:
    def broken(name: str) -> Attempt:
        return Attempt(engine=name, precision="exact", works=False, reason="it fell over")

    fast = Extra(name="fast", gives="", packages=(Package(name="openvino", wanted="", installed=None, fits=False),))
    advice = said(findings.of_engines([broken("torch"), broken("onnxruntime"), broken("openvino")], [fast]))
    assert advice.count("problem:") == 1
    assert "problem: The engine torch" in advice
    assert "hint: The engine onnxruntime" in advice
    assert "openvino" not in advice


def test_engines_are_told_apart_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    works = Attempt(engine="torch", precision="exact", works=True, error=2e-7, milliseconds=0.5)
    monkeypatch.setattr(engines, "in_a_child", lambda name: [msgspec.structs.replace(works, engine=name)])
    shown = doctor("--engines").output
    assert "openvino          exact: works, logits within 2e-07" in shown
    assert "not tried" not in shown
