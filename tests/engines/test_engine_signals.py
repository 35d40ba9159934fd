"""Does a process that has used engines and let them go survive a signal? OpenVINO's plugin moves the signal stack."""

from __future__ import annotations

import subprocess
import sys

import pytest

USED = """
import gc, os, signal
from engines.families import noise, tiny
from vitrail.engines.choose import open_engine

model, caught = tiny("plain"), []
first = open_engine(lambda: model, engine={name!r}, precision="exact")
second = open_engine(lambda: model, engine={name!r}, precision="exact")
second.run(noise(model))
del first
gc.collect()
del second
gc.collect()
signal.signal(signal.SIGTERM, lambda number, frame: caught.append(number))
os.kill(os.getpid(), signal.SIGTERM)
print(caught)
"""


@pytest.mark.parametrize("name", ["openvino", "onnxruntime", "torch"])
def test_a_signal_after_engines_have_come_and_gone_is_only_a_signal(name: str, pytestconfig: pytest.Config) -> None:
    if name != "torch":
        pytest.importorskip(name, reason="the extra `fast` is not installed")
    tests = pytestconfig.rootpath / "tests"
    ran = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tests)!r})\n" + USED.format(name=name)],
        capture_output=True,
        text=True,
    )
    assert (ran.returncode, ran.stdout) == (0, "[15]\n"), ran.stderr
