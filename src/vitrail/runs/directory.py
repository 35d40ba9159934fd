"""A run's folder: made once, never overwritten, and always in a state that can be read.

config.toml  run.json  results.csv  events.jsonl  weights/  checkpoints/
"""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import platform
import secrets
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from vitrail import __version__
from vitrail.checkpoint.atomic import replacing
from vitrail.errors import EnvironmentProblem, UsageError
from vitrail.runs.commit import sync_folder
from vitrail.runs.lock import held

Status = Literal["running", "completed", "preempted", "failed", "diskfull", "nan"]
HEADER = ("epoch", "step", "train_loss", "val_loss", "val_top1", "val_top5", "lr", "seconds", "images_per_second")


@dataclass(frozen=True)
class Run:
    """Where everything of a run is."""

    path: Path
    writes: bool = True  # of several processes that train together, one does

    @property
    def checkpoints(self) -> Path:
        """Full training states, one folder each (commit.py)."""
        return self.path / "checkpoints"

    @property
    def weights(self) -> Path:
        """The best and the last model, as native checkpoints."""
        return self.path / "weights"

    @property
    def config(self) -> Path:
        """The config as resolved; training with it repeats the run."""
        return self.path / "config.toml"


def create(path: Path, config: str, facts: Mapping[str, Any]) -> Run:
    """A new folder for a run, with its config and first facts; one that exists is never touched.

    It takes its name when it is complete, so a run that can be seen can be resumed.
    """
    if os.path.lexists(path):
        raise _taken(path)
    making = path.with_name(f".{path.name}.{secrets.token_hex(4)}.making")
    try:
        making.mkdir(parents=True)
        run = Run(making)
        run.checkpoints.mkdir()
        run.weights.mkdir()
        write_config(run, config)
        record(run, **facts)
        making.rename(path)  # fails if the name was taken meanwhile: a run's folder is never empty
        sync_folder(path.parent)
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
            raise _taken(path) from None
        raise EnvironmentProblem(
            f"{path} cannot be made: {error.strerror}.", "A folder that can be written to.", "Choose another --out."
        ) from error
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return Run(path)


def _taken(path: Path) -> UsageError:
    return UsageError(
        f"{path} exists.",
        "A run gets a folder of its own.",
        f"Go on with it (--resume {path}) or choose another (--out {next_free(path)}).",
    )


def open_run(path: Path) -> Run:
    """The run in a folder that has one."""
    run = Run(path)
    if not (path / "run.json").is_file() or not run.config.is_file():
        raise UsageError(
            f"{path} is not a run: it has no {'config.toml' if (path / 'run.json').is_file() else 'run.json'}.",
            "A folder that vitrail train made.",
            "Check the path, or start a run with vitrail train DATA --out RUN.",
        )
    run.checkpoints.mkdir(exist_ok=True)
    run.weights.mkdir(exist_ok=True)
    return run


def tidy(run: Run) -> None:
    """Remove what a killed process left half-written; only for the process that holds the run."""
    for folder in (run.path, run.weights / "best", run.weights / "last"):
        for path in folder.glob(".*.tmp"):
            path.unlink()


def next_free(path: Path) -> Path:
    """flowers, or the first of flowers-2, flowers-3 ... that is not taken."""
    if not path.exists():
        return path
    stem, _, number = path.name.rpartition("-")
    name, start = (stem, int(number) + 1) if stem and number.isdecimal() else (path.name, 2)
    return next(free for n in range(start, start + 10**6) if not (free := path.with_name(f"{name}-{n}")).exists())


def write_config(run: Run, text: str) -> None:
    """config.toml, whole or not at all."""
    with replacing(run.config) as file:
        file.write(text.encode())


@contextmanager
def owned(run: Run) -> Iterator[None]:
    """Hold the run, so that no second process trains in the same folder; the system lets go if we are killed."""
    if not run.writes:
        yield
        return
    with held(run.path / ".lock", f"Another process is training in {run.path}."):
        yield


def record(run: Run, **facts: Any) -> None:
    """Change some facts of run.json, whole or not at all."""
    if not run.writes:
        return
    known = read_record(run)
    with replacing(run.path / "run.json") as file:
        file.write(json.dumps({"schema_version": 1} | known | facts, indent=2).encode() + b"\n")


def read_record(run: Run) -> dict[str, Any]:
    """What run.json says."""
    try:
        facts: dict[str, Any] = json.loads((run.path / "run.json").read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError):  # damaged: the checkpoints decide, this is for people
        return {}
    return facts


def log_event(run: Run, kind: str, **facts: Any) -> None:
    """One line in events.jsonl. A line torn by a kill is closed before the next; a full disk loses only the line."""
    if not run.writes:
        return
    line = json.dumps({"time": round(time.time(), 3), "event": kind, **facts}).encode() + b"\n"
    with suppress(OSError), (run.path / "events.jsonl").open("a+b", buffering=0) as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            line = line if file.read(1) == b"\n" else b"\n" + line
        file.write(line)


def write_results(run: Run, rows: Sequence[Mapping[str, Any]]) -> None:
    """results.csv, always from the whole history, so that a resumed run neither repeats nor loses a row."""
    if not run.writes:
        return
    text = io.StringIO(newline="")
    table = csv.DictWriter(text, HEADER, extrasaction="ignore", lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    with replacing(run.path / "results.csv") as file:
        file.write(text.getvalue().encode())


def environment() -> dict[str, Any]:
    """What a result may depend on besides the config."""
    import torch

    return {
        "vitrail": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "command": sys.argv,
    }
