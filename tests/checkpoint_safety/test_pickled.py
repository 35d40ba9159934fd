"""Pickles: what training scripts save is found; what a hostile one could try is impossible."""

from __future__ import annotations

import argparse
import socket
import subprocess
import sys
import textwrap
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch

from vitrail.checkpoint import container, pickled, pickled_child
from vitrail.errors import CheckpointError

WEIGHTS = {"a.weight": torch.arange(6.0).view(2, 3), "b": torch.ones(3, dtype=torch.bfloat16)}


def through_the_child(content: object, path: Path, **how: object) -> container.Container:
    torch.save(content, path, **how)
    return pickled.read(path)


def assert_weights(found: container.Container) -> None:
    assert list(found.tensors) == list(WEIGHTS) or set(found.tensors) == set(WEIGHTS)
    for name, tensor in WEIGHTS.items():
        assert found.tensors[name].dtype == tensor.dtype
        assert torch.equal(found.tensors[name], tensor)


def test_a_training_checkpoint_gives_its_weights_and_says_what_it_left_out(tmp_path):
    path = tmp_path / "model.pth.tar"
    model = OrderedDict((f"module._orig_mod.{name}", torch.nn.Parameter(tensor)) for name, tensor in WEIGHTS.items())
    rest = {"args": argparse.Namespace(lr=1), "out": Path("x"), "epoch": np.float64(3), "curve": np.ones(3)}
    found = through_the_child({"model": model, "optimizer": {"state": {}}, **rest}, path)
    assert_weights(found)
    assert found.metadata["unwrapped"] == "model"
    assert found.metadata["skipped"] == "optimizer, args, out, epoch, curve"
    assert found.path == path


@pytest.mark.chaos
def test_the_old_format_is_read_too(tmp_path):
    assert_weights(through_the_child(WEIGHTS, tmp_path / "old.pth", _use_new_zipfile_serialization=False))


@pytest.mark.parametrize(
    ("content", "where"),
    [
        (WEIGHTS, []),
        ({"state_dict": WEIGHTS, "step": 3}, ["state_dict"]),
        ({"model_state_dict": WEIGHTS}, ["model_state_dict"]),
        ({"params": WEIGHTS}, ["params"]),
        ({"model": {"a.weight": torch.zeros(2, 3)}, "ema": WEIGHTS}, ["ema"]),
        ({"student": {}, "teacher": WEIGHTS}, ["teacher"]),
        ({"model": {"state_dict": {f"module.{key}": each for key, each in WEIGHTS.items()}}}, ["model", "state_dict"]),
    ],
)  # fmt: skip
def test_the_usual_wrappers_are_unwrapped(content, where):
    found, notes = pickled_child.weights_of(content, 10_000)
    assert set(found) == set(WEIGHTS)
    assert all(torch.equal(found[name], tensor) for name, tensor in WEIGHTS.items())
    assert notes.get("unwrapped", "") == " > ".join(where)


def test_a_prefix_that_only_some_names_have_is_theirs():
    mixed = {"module.a": torch.ones(1), "head": torch.ones(1)}
    assert set(pickled_child.weights_of(mixed, 100)[0]) == set(mixed)


def test_nothing_ever_falls_back_to_opening_a_pickle(tmp_path):
    path = tmp_path / "pytorch_model.bin"
    torch.save(WEIGHTS, path)
    with pytest.raises(CheckpointError) as caught:
        container.read(path)
    assert f"vitrail convert --from-pickle {path} {tmp_path / 'pytorch_model'}" in str(caught.value)


def test_the_command_is_quoted_for_a_shell(tmp_path):
    path = tmp_path / "my model; rm -rf.pth"
    torch.save(WEIGHTS, path)
    with pytest.raises(CheckpointError, match=r"--from-pickle '.*my model; rm -rf\.pth' '.*rm -rf'"):
        container.read(path)


CONFINED = """
import os, sys; from pathlib import Path
sys.path.insert(0, {folder!r})
import pickled_child
pickled_child.give_up_network_and_resources(1000)
import socket, subprocess, ctypes, pickle, torch
if {first!r} == "network":
    attempt = lambda: socket.create_connection(("127.0.0.1", {port}), 2)
else:
    pickled_child.give_up_the_rest(Path.cwd())
    pickled_child.limit_memory_and_time(1000)
    attempt = lambda: eval({attempt!r})
try:
    attempt()
except (OSError, MemoryError) as error:
    sys.exit(0)
sys.exit(3)
"""


def confined(tmp_path: Path, attempt: str, *, first: str = "", port: int = 0) -> int:
    """How a process ends that tries something after it gave everything up; 3 means it succeeded."""
    folder = str(Path(pickled_child.__file__).parent)
    program = textwrap.dedent(CONFINED).format(folder=folder, attempt=attempt, first=first, port=port)
    (tmp_path / "inside").mkdir()
    run = subprocess.run([sys.executable, "-c", program], cwd=tmp_path / "inside", env={}, check=False, timeout=120)
    return run.returncode


@pytest.mark.parametrize(
    "attempt",
    [
        "socket.socket()",
        "subprocess.run(['true'])",
        "os.system('true')",
        "os.fork()",
        "os.kill(os.getppid(), 0)",
        "open('../outside', 'w')",
        "os.open('../outside', os.O_CREAT | os.O_WRONLY)",
        "os.rename(__import__('shutil').__file__, '../outside')",
        "os.symlink('/etc/passwd', 'link')",
        "ctypes.CDLL('libm.so.6')",
        "pickle.loads(b'cos\\nsystem\\n(Vtrue\\ntR.')",
        "bytearray(2**31)",
        "open('large', 'wb').write(bytes(2**20) * 300)",
    ],
)
@pytest.mark.chaos
def test_what_the_reader_of_a_pickle_gave_up_it_cannot_do(attempt, tmp_path):
    status = confined(tmp_path, attempt)
    assert status == 0 or status < 0, status  # an error, or ended by the system (a file too large)
    assert not (tmp_path / "outside").exists()


@pytest.mark.chaos
def test_the_reader_of_a_pickle_has_no_network(tmp_path):
    if subprocess.run(["unshare", "-Un", "true"], check=False, capture_output=True).returncode:
        pytest.skip("this system lets nobody have a network of his own; the socket block above is what is left")
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert confined(tmp_path, "", first="network", port=server.getsockname()[1]) == 0


@pytest.mark.chaos
def test_the_reader_of_a_pickle_sees_no_environment_and_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setenv("HF_TOKEN", "secret")
    seen = tmp_path / "seen"
    spy = tmp_path / "spy.py"
    spy.write_text(f"import os; open({str(seen)!r}, 'w').write(repr((dict(os.environ), os.getcwd())))")
    monkeypatch.setattr(pickled, "CHILD", spy)
    torch.save(WEIGHTS, tmp_path / "m.pth")
    with pytest.raises(CheckpointError, match="made its reader stop"):
        pickled.read(tmp_path / "m.pth")
    environment, folder = eval(seen.read_text())
    assert not set(environment) & {"HF_TOKEN", "HOME", "PATH", "TMPDIR"}
    assert Path(folder).parent == tmp_path / "tmp"
    assert list((tmp_path / "tmp").iterdir()) == []
