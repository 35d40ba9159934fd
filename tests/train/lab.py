"""Runs in processes that die on purpose. Forked from a warm one, so that hundreds take minutes.

A process can be made to kill itself at its n-th event, where an event is any call, of Python or of C, made by the
main thread: every write, sync and rename of a commit, every layer of a step, every edge between epochs.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import torch
from train.tiny import RICH, run_tiny

from vitrail.errors import VitrailError

# The innermost of these functions on the stack says what the process was doing.
PHASES = {
    "commit": "inside a commit",
    "keep_weights": "writing weights",
    "validate": "evaluation",
    "close_epoch": "epoch edge",
    "descend": "optimiser step",
    "accumulate": "forward and backward",
    "take_step": "reading pictures",
    "make_plan": "before the run",
    "go_on": "between steps",
}


NEVER = 77


def in_child(work: Callable[[], int]) -> int:
    """What `work` returns in a process of its own: its own number, the exit code of our errors, 99 for a bug, or
    minus the signal that ended it.
    """
    child = os.fork()
    if child == 0:
        leave(work)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def leave(work: Callable[[], int]) -> NoReturn:
    """Do the work and end this process with what it returns."""
    code = 99
    try:
        code = work()
    except VitrailError as error:
        code = error.exit_code
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def in_world(size: int, work: Callable[[], int], port: int | None = None) -> list[int]:
    """What `work` returns in each of several processes that train together, as torchrun would have started them."""
    port = port or free_port()
    children = []
    for rank in range(size):
        child = os.fork()
        if child == 0:
            places = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
            addresses = {"MASTER_ADDR": "localhost", "MASTER_PORT": port}
            os.environ.update({name: str(value) for name, value in (places | addresses).items()})
            leave(work)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def free_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as one:
        one.bind(("localhost", 0))
        return int(one.getsockname()[1])


def done(work: Callable[[], Any]) -> int:
    """Do the work to its end."""
    work()
    return 0


def warm_up(pictures: Path, out: Path) -> None:
    """One run here, so that the processes forked from this one have everything imported; and one thread to fork."""
    torch.set_num_threads(1)
    run_tiny(pictures, out)
    run_tiny(pictures, out.with_name("warm and rich"), RICH)


def counting(work: Callable[[], Any], target: Path) -> int:
    """How many events a piece of work has, told in a file."""
    counted = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal counted
        counted += 1

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    target.write_text(str(counted))
    return 0


def dying_at(event_number: int, work: Callable[[], Any], diary: Path) -> int:
    """Do the work and be killed (SIGKILL) at an event; a line in the diary says in which phase."""

    def die(frame: FrameType) -> None:
        with diary.open("a") as file:
            file.write(phase_of(frame) + "\n")
        os.kill(os.getpid(), signal.SIGKILL)

    at_event(event_number, work, die)
    return 0


def at_event(event_number: int, work: Callable[[], Any], happen: Callable[[FrameType], None]) -> Any:
    """What the work returns; at its n-th event something happens."""
    left = event_number

    def watch(frame: FrameType, event: str, argument: object) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            happen(frame)

    sys.setprofile(watch)
    try:
        return work()
    finally:
        sys.setprofile(None)


def phase_of(frame: FrameType | None) -> str:
    """What the process was doing."""
    while frame is not None:
        if "vitrail" in frame.f_code.co_filename and frame.f_code.co_name in PHASES:
            return PHASES[frame.f_code.co_name]
        frame = frame.f_back
    return "around the run"


# What a commit asks of the system, as the profiler sees it.
DISK_CALLS = {"write", "fsync", "rename", "replace", "mkdir", "open", "flush", "unlink", "rmdir", "close", "__exit__"}


def at_disk_call(commit_number: int, call: int, work: Callable[[], Any], happen: Callable[[], None]) -> None:
    """Do the work; at the n-th call to the disk of its m-th commit, something happens instead of the call."""
    commits = calls = 0
    inside = False

    def watch(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal commits, calls, inside
        if frame.f_code.co_name == "commit" and frame.f_code.co_filename.endswith("commit.py"):
            if event == "call":
                commits, inside = commits + 1, True
            elif event == "return":
                inside = False
        if event == "c_call" and inside and commits == commit_number and argument.__name__ in DISK_CALLS:
            calls += 1
            if calls == call:
                happen()

    sys.setprofile(watch)
    try:
        work()
    finally:
        sys.setprofile(None)


def dying_in_commit(commit_number: int, call: int, work: Callable[[], Any]) -> int:
    """Be killed at the n-th call to the disk of the m-th commit."""
    at_disk_call(commit_number, call, work, lambda: os.kill(os.getpid(), signal.SIGKILL))
    return 0


def failing_in_commit(commit_number: int, call: int, error: int, work: Callable[[], Any]) -> int:
    """Have the n-th call to the disk of the m-th commit fail; the exit code, or NEVER if there was no such call."""
    came = False

    def fail() -> None:
        nonlocal came
        came = True
        raise OSError(error, os.strerror(error))

    at_disk_call(commit_number, call, work, fail)
    return 0 if came else NEVER
