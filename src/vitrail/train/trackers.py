"""Other people's dashboards, for those who have one: train.track. Each is an extra, and none is needed.

A tracker is told what the screen is told. Two are here; a third is a class with the same four methods and a line in
TRACKERS.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from vitrail.errors import ConfigError, EnvironmentProblem, did_you_mean


class Tracker(Protocol):
    """Where numbers go."""

    def __init__(self, run: Path, step: int) -> None:
        """A run's folder, and the step it goes on from."""

    def step(self, step: int, numbers: Mapping[str, float]) -> None:
        """After a step."""

    def epoch(self, step: int, numbers: Mapping[str, float]) -> None:
        """After an epoch."""

    def close(self) -> None:
        """At the end, however it comes."""


class TensorBoard:
    """RUN/tensorboard, for `tensorboard --logdir RUN`. A run that goes on takes back what came after its checkpoint."""

    needs = "tensorboard"

    def __init__(self, run: Path, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(run / "tensorboard"), purge_step=step or None)

    def step(self, step: int, numbers: Mapping[str, float]) -> None:
        """Under step/."""
        self._write("step", step, numbers)

    def epoch(self, step: int, numbers: Mapping[str, float]) -> None:
        """Under epoch/, at the same steps."""
        self._write("epoch", step, numbers)
        self.writer.flush()

    def close(self) -> None:
        """Everything on the disk."""
        self.writer.close()

    def _write(self, group: str, step: int, numbers: Mapping[str, float]) -> None:
        for name, number in numbers.items():
            self.writer.add_scalar(f"{group}/{name}", number, step)


class WeightsAndBiases:
    """A wandb run named after the folder; a run that goes on is the same one. WANDB_MODE=offline sends nothing."""

    needs = "wandb"

    def __init__(self, run: Path, step: int) -> None:  # noqa: ARG002 (wandb itself knows how far it was)
        import wandb

        self.run = wandb.init(project="vitrail", name=run.name, dir=str(run), id=_identity(run), resume="allow")

    def step(self, step: int, numbers: Mapping[str, float]) -> None:
        """Under step/."""
        self.run.log({f"step/{name}": number for name, number in numbers.items()}, step=step)

    def epoch(self, step: int, numbers: Mapping[str, float]) -> None:
        """Under epoch/."""
        self.run.log({f"epoch/{name}": number for name, number in numbers.items()}, step=step)

    def close(self) -> None:
        """Let wandb finish."""
        self.run.finish()


TRACKERS: Mapping[str, Any] = {"tensorboard": TensorBoard, "wandb": WeightsAndBiases}


def check_trackers(names: Sequence[str]) -> None:
    """Names that exist, and what they need installed: before anything is trained."""
    for name in names:
        if name not in TRACKERS:
            raise ConfigError(f"train.track names {name!r}.", did_you_mean(name, TRACKERS), "")
        needs = TRACKERS[name].needs
        if find_spec(needs) is None:
            raise EnvironmentProblem(
                f"train.track names {name}, and the package {needs} is not installed.",
                "It is an extra of its own.",
                f"pip install {needs}, or leave it out: results.csv and events.jsonl are always written.",
            )


def opened(names: Sequence[str], run: Path, step: int) -> list[Tracker]:
    """The trackers of a run."""
    return [TRACKERS[name](run, step) for name in names]


def _identity(run: Path) -> str:
    """The same for a run that goes on."""
    import hashlib

    return hashlib.blake2b(str(run.resolve()).encode(), digest_size=6).hexdigest()
