"""vitrail embed as a user meets it: what it prints, what it writes, its exit codes."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner, Result

from vitrail.cli import vitrail

EXACT = ["--engine", "openvino", "--precision", "exact"]


@pytest.fixture
def embed(checkpoint, photos, tmp_path, monkeypatch):
    """Runs the command in a folder that has photos/."""
    pytest.importorskip("openvino", reason="the extra `fast` is not installed")
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, **options: object) -> Result:
        return CliRunner().invoke(vitrail, ["embed", checkpoint, *arguments, *EXACT], **options)

    return run


def code(result: Result) -> int:
    """The exit code `vitrail` would give."""
    return getattr(result.exception, "exit_code", result.exit_code)


def test_without_out_every_file_is_a_line_and_then_there_is_a_sum(embed):
    result = embed("photos", "--neighbours", "1")
    lines = result.stdout.splitlines()
    assert code(result) == 0, result.stderr
    assert len(lines) == 17
    assert lines[0].startswith("photos/a/01.png: 40 x 40, near photos/")
    assert "photos/b/copy.png: 40 x 40, exact duplicate of photos/a/03.png, near photos/a/03.png 1.000" in lines
    assert lines[-1] == "16 pictures, 2 repeated, 2 that cannot be read: features 16 x 32"


def test_json_is_a_line_per_file_with_its_features(embed):
    result = embed("photos", "--json", "--quiet", "--feature", "mean")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["schema_version"] for row in rows] == [1] * 16
    assert [len(row["feature"]) if row["feature"] else row["error"].split(":")[0] for row in rows].count(32) == 14
    assert result.stderr == ""


def test_a_file_a_summary_and_codes(embed, tmp_path):
    assert embed("photos", "--out", "f.npy").stdout == "f.npy: 16 rows, of which errors: 1 corrupt, 1 empty\n"
    assert np.load(tmp_path / "f.npy").shape == (16, 32)
    again = embed("photos", "--out", "f.npy")
    assert code(again) == 2
    assert code(embed("photos", "--out", "f.npy", "--resume", "--strict")) == 6
    assert code(embed("photos", "--max-bad", "1")) == 3
    assert embed("photos", "--dry-run").stdout == "16 files\n"


def test_killed_for_real_it_goes_on(checkpoint, photos, tmp_path):
    pytest.importorskip("openvino", reason="the extra `fast` is not installed")
    command = [sys.executable, "-m", "vitrail", "embed", checkpoint, "photos", "--out", "f.npz", "--resume", *EXACT]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE)
    with process.stderr:
        process.stderr.readline()  # the engine is chosen: the job has begun
        process.kill()
    process.wait()
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "f.npz") as found:
        assert found["features"].shape == (16, 32)
        assert len(set(found["path"].tolist())) == 16
    assert sorted(path.name for path in tmp_path.iterdir()) == ["f.npz", "photos"]
