"""vitrail demo does the main job on what comes along, and every step of it is a command."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from vitrail.cli import vitrail
from vitrail.cli.demo import steps
from vitrail.errors import UsageError
from vitrail.images import digits as sheet


def test_it_trains_measures_predicts_and_explains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = [one for one in sheet.digits() if one[1] < 10]
    monkeypatch.setattr(sheet, "digits", lambda: iter(few))
    out = tmp_path / "demo"
    done = CliRunner().invoke(vitrail, ["demo", "--out", str(out), "--epochs", "1"])
    assert done.exit_code == 0, done.output
    typed = [shlex.split(line)[2] for line in done.stdout.splitlines() if line.startswith("$ vitrail ")]
    assert typed == ["trace", "explain", "train", "predict", "explain"]
    assert sum("004.png\t" in line for line in done.stdout.splitlines()) == 10
    pages = [Path(line.strip()) for line in done.stdout.split("Open in a browser:")[1].split()]
    assert len(pages) == 3
    assert all(page.stat().st_size > 10_000 for page in pages)
    assert (out / "digits-run" / "weights" / "best" / "model.safetensors").is_file()


def test_it_never_writes_over_a_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="exists already"):
        vitrail.main(["demo", "--out", str(tmp_path)], standalone_mode=False)


def test_its_steps_are_commands_that_exist(tmp_path: Path) -> None:
    for name, *_ in steps(tmp_path, tmp_path / "digits", None):
        assert vitrail.get_command(None, name) is not None  # type: ignore[arg-type]
