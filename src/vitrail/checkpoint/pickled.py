"""Reads weights out of a pickle (.pth, .pt, .bin) without opening it: a limited child process does.

Only `vitrail convert --from-pickle` and `vitrail.load(..., from_pickle=True)` come here, because the user said so.
Nothing falls back to this, and this falls back to nothing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from vitrail.checkpoint import container
from vitrail.checkpoint.source import Source, opened, shown
from vitrail.errors import CheckpointError, EnvironmentProblem

CHILD = Path(__file__).with_name("pickled_child.py")
START_SECONDS = 120  # to start Python and import torch, on the slowest disk
BYTES_PER_SECOND = 5_000_000


def read(path: Path, *, allow_nonfinite: bool = False) -> container.Container:
    """The tensors of a pickle; metadata `unwrapped` and `skipped` say where they were and what was left out."""
    if sys.platform == "win32":
        raise EnvironmentProblem(
            "Reading a pickle safely needs process limits, which Windows does not have.",
            "Pickles are read on Linux or macOS.",
            "Convert it there, or in WSL: vitrail convert --from-pickle FILE OUT",
        )
    with opened(Path(path)) as source:
        size = source.size
        with tempfile.TemporaryDirectory(prefix="vitrail-pickle-") as name:
            folder = Path(name).resolve()
            status = _run(source.path.resolve(), folder, START_SECONDS + size / BYTES_PER_SECOND)
            weights, refused = folder / "weights.safetensors", folder / "refused.txt"
            if refused.exists():
                raise _refusal(source, refused.read_text(encoding="utf-8", errors="replace")[:500])
            if status != 0 or not weights.exists():
                raise _refusal(source, f"made its reader stop: {_why(status)}")
            try:
                found = container.read(weights, allow_nonfinite=allow_nonfinite)
            except CheckpointError as error:  # the user knows the pickle, not the file made from it
                where = error.found.replace(str(weights), shown(str(path), 4096))
                raise CheckpointError(where, error.expected, error.fix) from error
    return dataclasses.replace(found, path=Path(path))


def _run(path: Path, folder: Path, seconds: float) -> int:
    """The child's exit status; it sees no environment, no terminal, no working directory but the folder."""
    child = subprocess.Popen(
        [sys.executable, "-I", "-B", str(CHILD), str(path), str(folder)],
        env={}, cwd=folder, close_fds=True, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        return child.wait(seconds)
    except subprocess.TimeoutExpired:
        return -signal.SIGALRM
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _why(status: int) -> str:
    if status in (-signal.SIGPROF, -signal.SIGXCPU, -signal.SIGALRM):
        return "it takes far longer than weights of this size."
    if status == -signal.SIGKILL:
        return "the system ended it, most likely for want of memory."
    return f"signal {signal.Signals(-status).name}." if status < 0 else f"exit status {status}."


def _refusal(source: Source, reason: str) -> CheckpointError:
    return source.refuse(
        shown(reason, 400),
        "A pickle of weights is a state dict: names and tensors, perhaps inside a training checkpoint.",
        "Where it was made, save model.state_dict() as safetensors.",
    )
