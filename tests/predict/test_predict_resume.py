"""Interrupted anywhere, does a job end with the table it would have had, and does it ever do another's work?"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import vitrail
from vitrail.bulk import parts
from vitrail.errors import EnvironmentProblem, UsageError
from vitrail.runs.lock import held
from vitrail.runs.signals import Interrupted

EXACT = {"engine": "torch", "precision": "exact", "batch_size": 2}


@pytest.fixture
def whole(model, photos, tmp_path) -> str:
    """The table of an uninterrupted job."""
    out = tmp_path / "whole.csv"
    vitrail.predict(model, photos, out=out, **EXACT)
    return out.read_text()


@pytest.fixture
def small_parts(monkeypatch) -> None:
    monkeypatch.setattr(parts, "ROWS", 3)


class Killed(BaseException):
    """The process is gone; what is in memory is lost."""


def lost(writer: parts.Parts, *_: object) -> None:
    """What a kill does to rows that are not yet a part."""
    for file in writer.files.values():
        file.close()


def interrupted(after: int, error: BaseException):
    """Ends a job when so many rows are done."""

    def told(done: int, total: int) -> None:
        if done >= after:
            raise error

    return told


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("after", range(0, 15, 2))
def test_a_job_goes_on_to_the_table_it_would_have_had(model, photos, tmp_path, whole, after, monkeypatch):
    out = tmp_path / "rows.csv"
    with monkeypatch.context() as killed:  # dies without committing what it has
        killed.setattr(parts.Parts, "__exit__", lost)
        with pytest.raises(Killed):
            vitrail.predict(model, photos, out=out, told=interrupted(after, Killed()), **EXACT)
    assert not out.exists()
    seen = []
    vitrail.predict(model, photos, out=out, resume=True, told=lambda done, _: seen.append(done), **EXACT)
    assert out.read_text() == whole
    assert seen[0] >= after - 4  # at most a part and a batch are done again
    assert not out.with_name("rows.csv.parts").exists()


def test_rows_at_hand_are_kept_when_a_job_is_asked_to_stop(model, photos, tmp_path):
    out = tmp_path / "rows.csv"
    with pytest.raises(Interrupted):
        vitrail.predict(
            model, photos, out=out, told=lambda done, _: done and os.kill(os.getpid(), signal.SIGTERM), **EXACT
        )
    (part,) = parts.finished(tmp_path / "rows.csv.parts", 0)
    assert (part.first, part.end) == (0, 2)


def test_the_list_is_that_of_the_beginning(model, photos, tmp_path, whole):
    out = tmp_path / "rows.csv"
    with pytest.raises(Killed):
        vitrail.predict(model, photos, out=out, told=interrupted(4, Killed()), **EXACT)
    (photos / "a" / "00-new.png").write_bytes((photos / "a" / "01.png").read_bytes())
    (photos / "b" / "10.png").unlink()
    vitrail.predict(model, photos, out=out, resume=True, **EXACT)
    now, before = out.read_text().splitlines(), whole.splitlines()
    assert [row.split(",")[0] for row in now] == [row.split(",")[0] for row in before]
    assert [row.split(",")[2] for row in now if "b/10.png" in row] == ["missing: There is no such file."]


def test_another_question_is_not_the_same_job(model, photos, tmp_path, monkeypatch):
    out = tmp_path / "rows.csv"
    with pytest.raises(Killed):
        vitrail.predict(model, photos, out=out, told=interrupted(4, Killed()), **EXACT)
    with pytest.raises(UsageError, match="--resume"):
        vitrail.predict(model, photos, out=out, **EXACT)
    with pytest.raises(UsageError, match="begun with top 5; now it is 2"):
        vitrail.predict(model, photos, out=out, resume=True, top=2, **EXACT)
    with pytest.raises(UsageError, match="begun with names"):
        vitrail.predict(model, photos / "a", out=out, resume=True, **EXACT)
    monkeypatch.setattr("vitrail.bulk.running.weights_of", lambda model: "others")
    with pytest.raises(UsageError, match="begun with weights"):
        vitrail.predict(model, photos, out=out, resume=True, **EXACT)


def test_two_processes_do_not_work_on_one_job(model, photos, tmp_path):
    out = tmp_path / "rows.csv"
    with pytest.raises(Killed):
        vitrail.predict(model, photos, out=out, told=interrupted(4, Killed()), **EXACT)
    with held(tmp_path / "rows.csv.parts" / ".lock", ""), pytest.raises(UsageError, match="Another process"):
        vitrail.predict(model, photos, out=out, resume=True, **EXACT)


def test_what_went_wrong_before_the_first_row_leaves_nothing(model, photos, tmp_path):
    with pytest.raises(UsageError):
        vitrail.predict(model, photos, out=tmp_path / "rows.csv", engine="onnxruntime", precision="balanced")
    assert [path.name for path in tmp_path.iterdir()] == ["photos"]


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("call", ["open", "fsync", "rename"])
@pytest.mark.parametrize("nth", [1, 2, 4])
def test_a_full_disk_costs_no_row_that_was_kept(model, photos, tmp_path, whole, monkeypatch, call, nth):
    out, calls = tmp_path / "rows.csv", itertools.count(1)
    target = {"open": Path, "fsync": os, "rename": Path}[call]
    real = getattr(target, call)

    def full(*args: object, **options: object) -> object:
        ours = call == "fsync" or "rows.csv.parts" in str(args[0])
        if ours and next(calls) >= nth:
            raise OSError(28, "No space left on device")
        return real(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(target, call, full)
        with pytest.raises(EnvironmentProblem):
            vitrail.predict(model, photos, out=out, **EXACT)
    assert not out.exists()
    vitrail.predict(model, photos, out=out, resume=True, **EXACT)
    assert out.read_text() == whole


def test_killed_for_real_it_goes_on(checkpoint, photos, tmp_path):
    pytest.importorskip("openvino", reason="the extra `fast` is not installed")
    command = [sys.executable, "-m", "vitrail", "predict", checkpoint, "photos", "--out", "rows.csv", "--resume"]
    command += ["--engine", "openvino", "--precision", "exact"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE)
    while not (tmp_path / "rows.csv.parts" / "inputs.lock").exists() and process.poll() is None:
        time.sleep(0.005)
    process.kill()
    process.communicate()
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = (tmp_path / "rows.csv").read_text().splitlines()
    assert len(rows) == 15
    assert [path.name for path in tmp_path.iterdir() if "rows" in path.name] == ["rows.csv"]
