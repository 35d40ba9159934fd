"""vitrail.train: from a folder of pictures to a model, and from an interrupted run to the same model."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vitrail.errors import DataError, UsageError, VitrailError
from vitrail.runs import directory
from vitrail.runs.commit import NoRoom
from vitrail.runs.directory import Run, log_event, record
from vitrail.runs.signals import Interrupted, Signals, watched
from vitrail.settings import Layer, Settings
from vitrail.train.budget import epochs_within
from vitrail.train.config import TrainConfig
from vitrail.train.distributed import ALONE, World, is_restart, joined
from vitrail.train.expected import expectation
from vitrail.train.guard import Diverged, NonFinite
from vitrail.train.heap import kept_memory
from vitrail.train.job import Job
from vitrail.train.loop import commit_state, run
from vitrail.train.outputs import write_bad_images
from vitrail.train.presets import Preset
from vitrail.train.screen import Screen, screen_for
from vitrail.train.settings import read_config, to_toml
from vitrail.train.start import Plan, begin, go_on, make_plan
from vitrail.train.state import TrainState
from vitrail.train.trackers import opened

HEADING = "What this run was made with; `vitrail train --config` this file makes it again."


@dataclass(frozen=True)
class TrainResult:
    """What became of a run."""

    path: Path
    status: directory.Status
    epochs: int
    best_epoch: int
    history: tuple[dict[str, Any], ...]
    signal: int = 0  # the one that interrupted it
    rank: int = 0  # of this process among those that trained together

    @property
    def best(self) -> dict[str, Any]:
        """The row of the best epoch; empty before the first."""
        return next((row for row in self.history if row["epoch"] == self.best_epoch), {})

    @property
    def exit_code(self) -> int:
        """What a shell is told."""
        return 128 + self.signal if self.signal else 0


def train(
    data: str | os.PathLike[str] | None = None,
    model: str | os.PathLike[str] | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | None = None,
    preset: Preset = "balanced",
    time_budget: str = "",
    settings: Mapping[str, Any] | Sequence[Layer] = (),
    quiet: bool = False,
) -> TrainResult:
    """Train on the pictures of `data`, starting from `model` (a checkpoint, or a name for fresh weights), or go on.

    `settings` are by the names of the config: {"train.epochs": 10, "augment.policy": "trivial"}. What they leave open
    is set by the preset, or with "none" by the config's defaults. `time_budget` ("20m") chooses the epochs.
    """
    layers = as_layers(settings)
    with joined() as world:
        if is_restart() and resume is None:
            return resumed(run_to_go_on_with(out), [], quiet, world)
        if resume is None:
            plan = planned(data, model, preset=preset, time_budget=time_budget, settings=layers, world=world)
            return started(plan, out, quiet)
        if data is not None or model is not None or out is not None:
            raise UsageError("A run that goes on has its data, model and folder.", "resume alone, or none.", "")
        return resumed(Path(resume), layers, quiet, world)


def run_to_go_on_with(out: str | os.PathLike[str] | None) -> Path:
    """The run these processes were training when one of them failed and torchrun started all of them again."""
    if out is None:
        raise UsageError(
            "torchrun started this run again, and it has no name to be found by.",
            "--out with --max-restarts.",
            "Go on with it by hand: torchrun ... -m vitrail train --resume RUN",
        )
    return Path(out)


def planned(
    data: str | os.PathLike[str] | None = None,
    model: str | os.PathLike[str] | None = None,
    *,
    preset: Preset = "balanced",
    time_budget: str = "",
    settings: Mapping[str, Any] | Sequence[Layer] = (),
    world: World = ALONE,
) -> Plan:
    """What `train` would do, worked out."""
    given = {"data.path": data, "train.model": model}
    argument = Layer("argument", {key: os.fspath(value) for key, value in given.items() if value is not None})
    plan = make_plan([*as_layers(settings), argument], preset, world)
    if time_budget:
        fitting, notes = world.led(lambda: epochs_within(plan, time_budget))
        plan = replace(plan, settings=fitting, notes=notes)
    return replace(plan, notes=(*plan.notes, expectation(plan, preset)))


def as_layers(settings: Mapping[str, Any] | Sequence[Layer]) -> list[Layer]:
    """Settings, however they are given."""
    return [Layer("settings", settings)] if isinstance(settings, Mapping) else list(settings)


def started(plan: Plan, out: str | os.PathLike[str] | None, quiet: bool) -> TrainResult:
    """A new run in a folder of its own."""
    name = Path(plan.data.root).resolve().name or "run"
    path = plan.world.told(Path(out) if out is not None else directory.next_free(Path("runs") / name))
    train_config = plan.record("train", TrainConfig)
    facts = {
        "status": "running",
        "seed": train_config.seed,
        "started": time.time(),
        "data": {"path": plan.data.root, "fingerprint": plan.data.fingerprint, "skipped": plan.data.skipped},
        "environment": directory.environment() | {"processes": plan.world.size},
        "notes": plan.notes,
    }
    made = plan.world.led(lambda: directory.create(path, to_toml(plan.settings.records, HEADING), facts))
    made = replace(made, writes=plan.world.leads)
    return attended(made, quiet, lambda signals: begin(plan, made, signals), plan.notes)


def resumed(path: Path, changes: Sequence[Layer], quiet: bool, world: World) -> TrainResult:
    """A run that was stopped, from its newest checkpoint."""
    made = replace(directory.open_run(path), writes=world.leads)
    settings = read_config(made.config, changes)
    changed = settings if changes else None
    return attended(made, quiet, lambda signals: go_on(settings, made, signals, world), changed=changed)


def attended(
    made: Run,
    quiet: bool,
    prepare: Callable[[Signals], tuple[Job, TrainState]],
    notes: Sequence[str] = (),
    changed: Settings | None = None,
) -> TrainResult:
    """Train while holding the folder, listening to signals, and writing down how it ends."""
    signals = Signals()
    with directory.owned(made), kept_memory(), screen_for(quiet or not made.writes) as screen:
        for note in notes:
            screen.tell(note)
        job, state = prepare(signals)
        if changed and made.writes:
            directory.write_config(made, to_toml(changed.records, HEADING))
        record(made, status="running", pid=os.getpid())
        try:
            with watched(signals), tracked(job, state, screen):
                status = finish(job, state, screen)
        except BaseException as error:
            note_failure(made, error)
            raise
        progress = state.progress
        number = signals.number if status == "preempted" else 0
        rows = tuple(progress.history)
        result = TrainResult(made.path, status, progress.epochs, progress.best_epoch, rows, number, job.world.rank)
        record(made, status=status, ended=time.time(), signal=number, epochs=result.epochs, best=result.best)
        if status == "completed" and made.writes and job.config.report:
            tell_the_end(made, screen)
    return result


def tell_the_end(made: Run, screen: Screen) -> None:
    """The report. The weights are safe by now; should it fail, going on with the finished run makes it again."""
    from vitrail.train.report import report

    screen.phase("evaluating the best weights")
    try:
        found = report(made.path, screen.counted)
    except VitrailError as error:
        log_event(made, "no report", error=str(error))
        screen.warn(f"The run is complete, but has no report: {error.found}")
    else:
        log_event(made, "report", pictures=len(found.rows))


@contextmanager
def tracked(job: Job, state: TrainState, screen: Screen) -> Iterator[None]:
    """The dashboards that were asked for, told by the leading process."""
    screen.trackers = opened(job.config.track, job.run.path, state.progress.step) if job.run.writes else []
    try:
        yield
    finally:
        for tracker in screen.trackers:
            tracker.close()


def finish(job: Job, state: TrainState, screen: Screen) -> directory.Status:
    """Train to the end, or to a committed stop."""
    try:
        run(job, state, screen)
    except Interrupted as stopped:
        job.signals.number = stopped.number  # it may have been sent to another process
        log_event(job.run, "signal", number=stopped.number, step=state.progress.step)
        commit_state(job, state)
        log_event(job.run, "commit", step=state.progress.step)
        return "preempted"
    except (Diverged, DataError):
        with suppress(NonFinite):  # the state before the step that failed is worth keeping, unless it is bad itself
            commit_state(job, state)
        raise
    finally:
        if state.progress.bad:
            write_bad_images(job.run, state.progress.bad)
    return "completed"


def note_failure(made: Run, error: BaseException) -> None:
    """Write down in the run why it ended; on a full disk even that may not be possible."""
    kinds: dict[type[BaseException], directory.Status] = {NoRoom: "diskfull", Diverged: "nan"}
    status = next((kind for known, kind in kinds.items() if isinstance(error, known)), "failed")
    with suppress(VitrailError):
        record(made, status=status, ended=time.time(), error=str(error) or type(error).__name__)
    if made.writes and not isinstance(error, VitrailError):
        with suppress(OSError):
            (made.path / "traceback.txt").write_text("".join(traceback.format_exception(error)), encoding="utf-8")
