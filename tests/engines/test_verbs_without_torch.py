"""Does a verb that runs a known model do without torch, in every form of its answer?"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest
from families import tiny

import vitrail

pytest.importorskip("openvino", reason="the extra `fast` is not installed")

COMMAND = """
import sys
if sys.argv.pop(1) == "without":
    sys.modules["torch"] = None  # importing it is an ImportError
from vitrail.cli import main
main()
"""
ANSWERS = {
    "predict, shown": ["predict"],
    "predict, a table": ["predict", "--out", "rows.csv"],
    "embed, shown": ["embed"],
    "embed, tokens and neighbours": ["embed", "--feature", "token", "--neighbours", "1", "--out", "rows.npy"],
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_model_that_was_run_before_is_run_again_without_torch(tmp_path, answer):
    model, photos = tmp_path / "model", Path(str(resources.files("vitrail") / "samples"))
    vitrail.save(tiny("plain"), model)
    verb, *options = ANSWERS[answer]
    command = [verb, str(model), str(photos / "*.jpg"), "--engine", "openvino", "--precision", "exact", *options]

    def files_after(way: str) -> dict[str, bytes]:
        work = tmp_path / way
        work.mkdir()
        environment = os.environ | {"VITRAIL_CACHE": str(tmp_path / "cache")}
        ran = subprocess.run(
            [sys.executable, "-c", COMMAND, way, *command], cwd=work, env=environment, capture_output=True, text=True
        )
        assert ran.returncode == 0, ran.stderr
        assert (way == "without") == ("Chosen before" in ran.stderr)
        return {path.name: path.read_bytes() for path in work.iterdir()} | {"stdout": ran.stdout.encode()}

    assert files_after("with") == files_after("without")
