"""Do several processes that train together have the data, the curve and the checkpoints of one? (gloo, on a CPU)"""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from train.lab import done, in_world, warm_up
from train.tiny import RICH, TINY, fingerprint, run_tiny

import vitrail
from vitrail.train import loop, step
from vitrail.train.run import train

# Two processes have six pictures of a step each, one process has two portions of six: the same sums.
SAME: dict[str, Any] = {**RICH, "train.micro_batch": 6, "train.precision": "fp32"}
FSDP: dict[str, Any] = {**SAME, "train.parallel": "fsdp"}
# Shards sum in another order. AdamW makes a step of a gradient that is only rounding, so losses drift by 1e-4 or so.
NEAR = 2e-3


@pytest.fixture(scope="module", autouse=True)
def one_thread(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Processes are forked from this one, which must have a single thread and everything imported."""
    warm_up(pictures, tmp_path_factory.mktemp("warm") / "run")


def curve(run: Path) -> list[tuple[float, float]]:
    with (run / "results.csv").open() as file:
        return [(float(row["train_loss"]), float(row["val_loss"])) for row in csv.DictReader(file)]


def close(one: Path, other: Path) -> bool:
    pairs = list(zip(curve(one), curve(other), strict=True))
    return all(abs(a - b) < NEAR for mine, theirs in pairs for a, b in zip(mine, theirs, strict=True))


def going(pictures: Path, out: Path, changes: dict[str, Any]) -> partial[int]:
    return partial(done, partial(run_tiny, pictures, out, changes))


def resuming(out: Path) -> partial[int]:
    return partial(done, partial(train, resume=out, quiet=True))


def stopping_at(number: int, rank: int, work: partial[Any]) -> int:
    """Do the work; the process of this rank is sent a signal just before a step."""
    real = loop.take_step

    def stopping(job: Any, state: Any, batches: Any) -> Any:
        if state.progress.step == number and job.world.rank == rank:
            job.signals.number = 15
        return real(job, state, batches)

    loop.take_step = stopping
    return int(work().exit_code)


def test_two_copies_train_to_the_bits_of_one_process(pictures: Path, tmp_path: Path) -> None:
    run_tiny(pictures, tmp_path / "one", SAME)
    assert in_world(2, going(pictures, tmp_path / "two", SAME)) == [0, 0]
    one, two = fingerprint(tmp_path / "one"), fingerprint(tmp_path / "two")
    assert {name: one[name] for name in ("state", "last", "best")} == {
        name: two[name] for name in ("state", "last", "best")
    }
    assert close(tmp_path / "one", tmp_path / "two")


def test_shards_have_the_curve_of_one_process_and_are_exported_as_one_model(pictures: Path, tmp_path: Path) -> None:
    run_tiny(pictures, tmp_path / "one", SAME)
    assert in_world(2, going(pictures, tmp_path / "two", FSDP)) == [0, 0]
    assert close(tmp_path / "one", tmp_path / "two")
    forgetful = {**FSDP, "train.gradient_checkpointing": True}
    assert in_world(2, going(pictures, tmp_path / "again", forgetful)) == [0, 0]
    assert fingerprint(tmp_path / "again") == fingerprint(tmp_path / "two"), "computed again, to the same bits"
    model = vitrail.load(tmp_path / "two" / "weights" / "best")
    assert model(torch.zeros(1, 3, 16, 16)).isfinite().all()


@pytest.mark.parametrize("changes", [SAME, FSDP], ids=["ddp", "fsdp"])
def test_processes_leave_together_and_go_on_to_the_same_bits(
    changes: dict[str, Any], pictures: Path, tmp_path: Path
) -> None:
    assert in_world(2, going(pictures, tmp_path / "whole", changes)) == [0, 0]
    begin = partial(run_tiny, pictures, tmp_path / "stopped", changes)
    assert in_world(2, partial(stopping_at, 5, 1, begin)) == [143, 143]
    assert json.loads((tmp_path / "stopped" / "run.json").read_text())["status"] == "preempted"
    assert in_world(2, resuming(tmp_path / "stopped")) == [0, 0]
    assert fingerprint(tmp_path / "stopped") == fingerprint(tmp_path / "whole")


@pytest.mark.parametrize("changes", [SAME, FSDP], ids=["ddp", "fsdp"])
def test_after_one_was_killed_all_go_on_to_the_same_bits(
    changes: dict[str, Any], pictures: Path, tmp_path: Path
) -> None:
    def killed() -> int:
        real = loop.take_step

        def dying(job: Any, state: Any, batches: Any) -> Any:
            if state.progress.step == 5 and job.world.rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(job, state, batches)

        loop.take_step = dying
        return done(partial(run_tiny, pictures, tmp_path / "killed", changes))

    assert in_world(2, going(pictures, tmp_path / "whole", changes)) == [0, 0]
    survivor, victim = in_world(2, killed)
    assert (survivor != 0, victim) == (True, -signal.SIGKILL)
    assert in_world(2, resuming(tmp_path / "killed")) == [0, 0]
    assert fingerprint(tmp_path / "killed") == fingerprint(tmp_path / "whole")


@pytest.mark.chaos
def test_torchrun_starts_them_again_and_they_go_on_to_the_same_bits(pictures: Path, tmp_path: Path) -> None:
    assert in_world(2, going(pictures, tmp_path / "whole", SAME)) == [0, 0]
    script = Path(__file__).with_name("killed_once.py")
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "1"]
    settings = {**TINY, **SAME}
    told = [*command, str(script), str(pictures), str(tmp_path / "killed"), json.dumps(settings)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(told, capture_output=True, text=True, env=environment, timeout=600, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    events = [json.loads(line) for line in (tmp_path / "killed" / "events.jsonl").read_text().splitlines()]
    assert [event["step"] for event in events if event["event"] == "resume"] == [4]
    assert fingerprint(tmp_path / "killed") == fingerprint(tmp_path / "whole")


def test_another_number_of_processes_goes_on_from_the_same_checkpoint(pictures: Path, tmp_path: Path) -> None:
    still = {"train.mixup": 0.0, "train.cutmix": 0.0, "model.hidden_dropout_prob": 0.0, "model.drop_path_rate": 0.0}
    shards = {**FSDP, **still}  # portions of other sizes would meet others to mix with, and drop other numbers
    run_tiny(pictures, tmp_path / "one", {**SAME, **still})
    for size in (1, 3):
        out = tmp_path / f"then {size}"
        begin = partial(run_tiny, pictures, out, shards)
        assert in_world(2, partial(stopping_at, 5, 0, begin)) == [143, 143]
        assert in_world(size, resuming(out)) == [0] * size
        assert close(tmp_path / "one", out), size
    alone = tmp_path / "then none"
    assert in_world(2, partial(stopping_at, 5, 0, partial(run_tiny, pictures, alone, shards))) == [143, 143]
    train(resume=alone, quiet=True)  # without torchrun there are no shards, and none are needed
    assert close(tmp_path / "one", alone)


def test_a_process_without_pictures_keeps_up(pictures: Path, tmp_path: Path) -> None:
    uneven: dict[str, Any] = {
        "train.batch_size": 7,
        "train.micro_batch": 2,
        "train.precision": "fp32",
        "train.epochs": 1,
    }
    uneven |= {"model.hidden_dropout_prob": 0.0, "model.drop_path_rate": 0.0}
    run_tiny(pictures, tmp_path / "one", uneven)
    for kind in ("ddp", "fsdp"):
        out = tmp_path / kind
        assert in_world(3, going(pictures, out, {**uneven, "train.parallel": kind})) == [0, 0, 0]
        assert close(tmp_path / "one", out)


def test_a_bad_picture_of_one_process_is_known_to_all(tmp_path: Path) -> None:
    from train.tiny import make_pictures

    data = make_pictures(tmp_path / "data", count=10)
    (data / "class 1" / "4.png").write_bytes(b"no picture")
    assert in_world(2, going(data, tmp_path / "run", SAME)) == [0, 0]
    assert (tmp_path / "run" / "bad_images.csv").read_text().count("4.png") == 1
    assert in_world(2, going(data, tmp_path / "strict", {**SAME, "train.max_bad": 0})) == [3, 3]


@pytest.mark.parametrize("changes", [SAME, FSDP], ids=["ddp", "fsdp"])
def test_a_loss_that_is_not_finite_in_one_process_stops_all(
    changes: dict[str, Any], pictures: Path, tmp_path: Path
) -> None:
    def spoilt() -> int:
        real = step.mixed

        def spoil(images: Any, targets: Any, how: Any) -> Any:
            images, targets = real(images, targets, how)
            bad = os.environ["RANK"] == "1"
            return images * float("nan") if bad else images, targets

        step.mixed = spoil
        run_tiny(pictures, tmp_path / "run", changes)
        return 0

    assert in_world(2, spoilt) == [2, 2]
    events = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    assert [(event["module"], event["step"]) for event in events if event["event"] == "not finite"] == [("images", 0)]
