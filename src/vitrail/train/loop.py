"""The run: steps to epochs, epochs to a trained model, and a checkpoint wherever something could be lost.

Between any two steps the state is whole. Whatever interrupts a step or an evaluation, that state is what is
committed, and going on from it repeats the rest bit for bit.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from vitrail.errors import CheckpointError, DataError
from vitrail.runs import commit
from vitrail.runs.commit import NoRoom
from vitrail.runs.directory import log_event, write_results
from vitrail.train import guard
from vitrail.train.config import nonfinite_policy
from vitrail.train.features import features_of
from vitrail.train.features import read as read_features
from vitrail.train.guard import Diverged, NonFinite
from vitrail.train.job import Batches, Job
from vitrail.train.optim import learning_rate
from vitrail.train.outputs import keep_weights, write_bad_images
from vitrail.train.screen import Screen
from vitrail.train.shards import committed_by_all
from vitrail.train.state import TrainState, is_sharded, restore, size_of, write_state
from vitrail.train.step import Taken, take_step
from vitrail.train.validate import validate


@dataclass
class Clock:
    """Where the time of this process goes, and when it last committed."""

    committed: float = field(default_factory=time.monotonic)
    training: float = 0.0
    waiting: float = 0.0  # for pictures, within training
    full_disks: int = 0  # commits in a row that found no room


def run(job: Job, state: TrainState, screen: Screen) -> None:
    """Train until the run is finished."""
    job, clock = with_features(job, state, screen), Clock()
    begun = job.world.led(lambda: any(job.run.checkpoints.glob("step-*")))
    if state.progress.step == 0 and not begun:
        save(job, state, screen, clock)  # from now on the weights it started from are no longer needed
    while not state.progress.finished:
        try:
            go_on(job, state, screen, clock)
        except NonFinite as error:
            recover(job, state, screen, error)


def with_features(job: Job, state: TrainState, screen: Screen) -> Job:
    """For a probe, what it learns from: made once, by the leading process."""
    if job.config.mode != "probe":
        return job
    screen.phase("computing features")

    def told(done: int, total: int) -> None:
        screen.counted(done, total)
        job.signals.check()

    folder = job.run.path / "features"
    job.world.led(lambda: features_of(state.model, job.data, job.data_config, folder, told))
    job = replace(job, features=read_features(folder))
    assert job.features is not None
    note_bad(job, state, job.features.reasons(job.data))
    return job


def go_on(job: Job, state: TrainState, screen: Screen, clock: Clock) -> None:
    """Steps and epochs from wherever the state is, until the run is finished."""
    per_epoch = job.order.steps_per_epoch
    batches = clocked(job.training_batches(state.model, state.progress.step), clock)
    while not state.progress.finished:
        if state.progress.step == (state.progress.epochs + 1) * per_epoch:
            close_epoch(job, state, screen)
            save(job, state, screen, clock)
            continue
        started = time.monotonic()
        taken = take_step(job, state, batches)
        note(job, state, taken, time.monotonic() - started)
        clock.training += time.monotonic() - started
        screen.step(job, state, taken, clock.waiting / max(clock.training, 1e-9))
        if state.progress.step % per_epoch and due(job, state, clock):
            save(job, state, screen, clock)


def clocked(batches: Batches, clock: Clock) -> Batches:
    """The same batches; the time spent waiting for them is noted."""
    while True:
        started = time.monotonic()
        batch = next(batches, None)
        clock.waiting += time.monotonic() - started
        if batch is None:
            return
        yield batch


def note(job: Job, state: TrainState, taken: Taken, seconds: float) -> None:
    """Count what a step saw."""
    progress = state.progress
    progress.loss_sum += taken.loss_sum
    progress.seen += taken.pictures
    progress.seconds += seconds
    note_bad(job, state, taken.bad)


def note_bad(job: Job, state: TrainState, bad: list[tuple[str, str]]) -> None:
    """Report pictures that cannot be read, each once; too many end the run."""
    known = state.progress.bad
    for path, reason in bad:
        if path not in known:
            known[path] = reason
            log_event(job.run, "bad image", path=path, reason=reason)
    count, limit = len(known), job.config.max_bad
    pictures = len(job.data.train) + len(job.data.val)
    if count > (limit if limit >= 1 else limit * pictures):
        write_bad_images(job.run, known)
        raise DataError(
            f"{count} of {pictures:,} pictures cannot be read, such as {next(iter(known))}.",
            f"At most {f'{limit:g}' if limit >= 1 else f'{limit:.0%}'} (train.max_bad).",
            f"See {job.run.path / 'bad_images.csv'}; repair or remove them, or raise --max-bad, and resume.",
        )


def close_epoch(job: Job, state: TrainState, screen: Screen) -> None:
    """Evaluate, keep the weights, write the row; decide whether the run goes on."""
    started, progress = time.monotonic(), state.progress
    screen.phase("evaluating")
    scores, bad = validate(job, state, screen.counted)
    note_bad(job, state, bad)
    row = epoch_row(job, state, scores.means if job.data.val else {}, time.monotonic() - started)
    progress.history.append(row)
    progress.epochs += 1
    progress.loss_sum, progress.seen, progress.seconds = 0.0, 0, 0.0
    improved = is_best(job, state, row)
    if progress.epochs == job.config.epochs:
        progress.finished = "all epochs done"
    elif job.config.patience and progress.epochs - progress.best_epoch >= job.config.patience:
        progress.finished = f"no better result in {job.config.patience} epochs"
    keep_weights(job, state, row, improved)
    write_results(job.run, progress.history)
    screen.epoch(row, improved)


def epoch_row(job: Job, state: TrainState, scores: dict[str, float], seconds: float) -> dict[str, Any]:
    """A row of results.csv."""
    progress = state.progress
    rate = learning_rate(job.config, progress.step - 1, job.steps) * progress.rate
    return {
        "epoch": progress.epochs + 1,
        "step": progress.step,
        "train_loss": round(progress.loss_sum / max(progress.seen, 1), 6),
        **scores,
        "lr": float(f"{rate:.6g}"),
        "seconds": round(progress.seconds + seconds, 2),
        "images_per_second": round(progress.seen / max(progress.seconds, 1e-9), 1),
    }


def is_best(job: Job, state: TrainState, row: dict[str, Any]) -> bool:
    """Whether this epoch is better than all before it; without validation pictures the latest is."""
    if not job.data.val:
        value = [float(row["epoch"])]
    elif job.config.metric == "top1":
        value = [row["val_top1"], -row["val_loss"]]
    else:
        value = [-row["val_loss"]]
    improved = value > state.progress.best
    if improved:
        state.progress.best, state.progress.best_epoch = value, row["epoch"]
    return improved


def due(job: Job, state: TrainState, clock: Clock) -> bool:
    """Whether it is time for a checkpoint within an epoch."""
    every, minutes = job.config.checkpoint_every, job.config.checkpoint_minutes
    if every and state.progress.step % every == 0:
        return True
    return bool(minutes) and bool(job.world.most(time.monotonic() - clock.committed >= minutes * 60))


def save(job: Job, state: TrainState, screen: Screen, clock: Clock) -> None:
    """Commit the state. A full disk is survived once; the second time in a row, or at the end, it ends the run."""
    screen.phase("saving")
    started = time.monotonic()
    try:
        done = commit_state(job, state)
    except NoRoom as error:
        clock.full_disks += 1
        log_event(job.run, "no room", step=state.progress.step, error=error.found)
        if clock.full_disks > 1 or state.progress.finished:
            raise
        screen.warn(f"{error.found} Training goes on; the next checkpoint has to succeed.")
    else:
        clock.full_disks = 0
        seconds = round(time.monotonic() - started, 3)
        log_event(job.run, "commit", step=done.step, path=done.path.name, seconds=seconds)
    clock.committed = time.monotonic()


def commit_state(job: Job, state: TrainState) -> commit.Checkpoint:
    """A checkpoint of the state as it is now."""
    write = partial(write_state, state, job.data.fingerprint, job.world)
    size, keep = size_of(state), job.config.keep_checkpoints

    def whole(write: commit.Writer) -> commit.Checkpoint:
        return commit.commit(job.run.checkpoints, state.progress.step, size, write, keep=keep)

    return committed_by_all(job.world, whole, write) if is_sharded(state) else job.world.led(lambda: whole(write))


def recover(job: Job, state: TrainState, screen: Screen, error: NonFinite) -> None:
    """Do what train.on_nonfinite says."""
    policy, most = nonfinite_policy(job.config.on_nonfinite)
    progress = state.progress
    log_event(job.run, "not finite", policy=policy, **guard.facts(error))
    usable = not error.what.endswith("state")  # weights that are bad already cannot be stepped over
    if policy == "skip" and progress.skipped < most and usable:
        progress.skipped += 1
        progress.step += 1
        screen.warn(f"{error} The step is left out ({progress.skipped} of {most}).")
    elif policy == "rollback" and progress.rollbacks < most:
        roll_back(job, state)
        screen.warn(f"{error} Back to step {state.progress.step:,}, with half the learning rate.")
    else:
        raise Diverged(
            str(error),
            "Finite numbers.",
            f"Lower train.lr or raise train.warmup, and resume: --resume {job.run.path} --set train.lr=...",
        ) from error


def roll_back(job: Job, state: TrainState) -> None:
    """The newest checkpoint again, and from there half the learning rate: the same steps would end the same way."""
    rollbacks, rate = state.progress.rollbacks, state.progress.rate
    chosen = job.world.led(lambda: commit.newest(job.run.checkpoints)[0])
    if chosen is None:
        raise CheckpointError("There is no checkpoint to roll back to.", "", "Start again with a lower train.lr.")
    restore(state, chosen.path, job.world)
    state.progress.rollbacks, state.progress.rate = rollbacks + 1, rate / 2
