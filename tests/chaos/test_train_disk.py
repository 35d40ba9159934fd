"""A disk that is full, or fails, or is pulled away at any call: is the last checkpoint always there? (A2, A3, A4)"""

from __future__ import annotations

import errno
import hashlib
import os
import random
import shutil
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from chaos.figures import report
from train.lab import NEVER, done, dying_in_commit, failing_in_commit, in_child, warm_up
from train.tiny import RICH, TINY, fingerprint, run_tiny

from vitrail.runs import commit
from vitrail.train.run import train

pytestmark = pytest.mark.chaos
ERRORS = {"full": errno.ENOSPC, "quota": errno.EDQUOT, "broken": errno.EIO}


@pytest.fixture
def whole(pictures: Path, tmp_path: Path) -> dict[str, str]:
    """What an undisturbed run ends in."""
    warm_up(pictures, tmp_path / "warm")
    run_tiny(pictures, tmp_path / "whole", RICH)
    return fingerprint(tmp_path / "whole")


def state_of(checkpoints: Path) -> dict[str, str]:
    return {
        str(path.relative_to(checkpoints)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(checkpoints.glob("step-*/*"))
    }


def test_killed_before_and_after_every_call_of_a_commit_there_is_a_checkpoint_and_little_is_lost(
    whole: dict[str, str], pictures: Path, tmp_path: Path
) -> None:
    points = 0
    for number_of_commit in (1, 2, 4):
        call = 0
        while True:
            call += 1
            out = tmp_path / f"killed {number_of_commit} {call}"
            begin = partial(run_tiny, pictures, out, RICH)
            code = in_child(partial(dying_in_commit, number_of_commit, call, begin))
            if code == 0:
                break  # the commit has no more calls
            assert code == -9
            points += 1
            if number_of_commit > 1:
                best, _ = commit.newest(out / "checkpoints")
                assert best is not None
                assert best.step >= 2 * (number_of_commit - 2)  # at most one interval is lost
            assert in_child(partial(done, partial(train, resume=out, quiet=True))) == 0
            assert fingerprint(out) == whole, (number_of_commit, call)
            shutil.rmtree(out)
    report("killed at every call of a commit", points=points, mismatches=0, manual_steps=0)
    assert points >= 150


@pytest.mark.parametrize("kind", ERRORS)
def test_a_call_of_a_commit_that_fails_is_survived_and_changes_nothing(
    kind: str, whole: dict[str, str], pictures: Path, tmp_path: Path
) -> None:
    faults = stopped = 0
    for call in range(1, 10_000):
        out = tmp_path / f"{kind} {call}"
        begin = partial(run_tiny, pictures, out, RICH)
        code = in_child(partial(failing_in_commit, 3, call, ERRORS[kind], begin))
        if code == NEVER:
            break  # that commit has no more calls
        faults += 1
        stopped += code == 5
        assert code in (0, 5), call
        best, damaged = commit.newest(out / "checkpoints")
        assert best is not None
        assert damaged == []
        assert in_child(partial(done, partial(train, resume=out, quiet=True))) == 0
        assert fingerprint(out) == whole, call
        shutil.rmtree(out)
    report("a call of a commit fails", error=kind, faults=faults, stopped=stopped, mismatches=0)
    assert faults >= 15


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_real_disk_that_fills_up_stops_the_run_with_exit_code_5_and_loses_nothing(
    pictures: Path, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", disk], capture_output=True)
    if mounted.returncode:
        pytest.skip("a small tmpfs cannot be mounted here")
    wide: dict[str, Any] = {"model.hidden_size": 192, "model.intermediate_size": 384, "train.checkpoint_every": 1}
    try:
        run_tiny(pictures, tmp_path / "whole", wide)
        warm_up(pictures, tmp_path / "warm")
        codes = []
        for taken in (63, 60, 57, 54, 51):  # megabytes that belong to somebody else
            out = disk / f"run {taken}"
            filler = disk / "filler"
            filler.write_bytes(bytes(taken * 2**20))
            codes.append(in_child(partial(done, partial(run_tiny, pictures, out, wide))))
            before = state_of(out / "checkpoints")
            filler.unlink()
            resume = partial(train, resume=out, quiet=True)
            if out.exists():
                assert in_child(partial(done, resume)) == 0
                assert fingerprint(out) == fingerprint(tmp_path / "whole")
                assert codes[-1] == 5 or before == state_of(out / "checkpoints")
                shutil.rmtree(out)
        report("a tmpfs of 64 MB that fills up", codes=codes)
        assert 5 in codes
        assert set(codes) <= {0, 5}
    finally:
        subprocess.run(["umount", disk], check=True)


def test_one_changed_bit_or_a_missing_end_anywhere_in_a_checkpoint_is_noticed(
    whole: dict[str, str], pictures: Path, tmp_path: Path
) -> None:
    checkpoints = tmp_path / "whole" / "checkpoints"
    newest = max(checkpoints.glob("step-*"))
    second = min(checkpoints.glob("step-*"))
    noticed = variants = 0
    for path in sorted(newest.iterdir()):
        content = path.read_bytes()
        dice = random.Random(path.name)
        cuts = [len(content) * percent // 100 for percent in range(100)]
        for variant in range(200):
            if variant < 100:
                path.write_bytes(content[: cuts[variant]])
            else:
                changed = bytearray(content)
                changed[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
                path.write_bytes(bytes(changed))
            best, damaged = commit.newest(checkpoints)
            variants += 1
            noticed += best is not None and best.path == second and [one.path for one in damaged] == [newest]
        path.write_bytes(content)
    report("bits flipped and files cut", variants=variants, noticed=noticed)
    assert variants >= 500
    assert noticed == variants
    assert TINY["train.epochs"] == 3
