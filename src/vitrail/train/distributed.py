"""The other processes of a run, if there are any: who does what, and sums over all.

torchrun starts them and says so in the environment. Every process reads the same data and reaches the same
decisions. What one alone knows (a signal, a bad picture, a full disk) is told to all before anybody acts on it, so
that no process ever waits for one that has left.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from vitrail.errors import EnvironmentProblem
from vitrail.runs.signals import Interrupted

T = TypeVar("T")
# Groups stay until the process ends. An error's frames may hold DDP's reducer longer than its group lasts: it would be
# the last to let the group go, and wait for threads that wait for the interpreter, which it holds (torch 2.13).
LASTING: list[Any] = []
LAUNCHED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class World:
    """This process among those that train together."""

    rank: int = 0
    size: int = 1
    here: int = 0  # place among the processes of this machine, which is also the number of its GPU
    neighbours: int = 1  # processes of this machine
    launched: bool = False  # by torchrun, if only one of them

    @property
    def leads(self) -> bool:
        """Whether this is the process that writes, and that people hear from."""
        return self.rank == 0

    def total(self, *numbers: float) -> list[float]:
        """Sums over all processes, in 64 bits."""
        return self._reduced(numbers, dist.ReduceOp.SUM) if self.launched else list(numbers)

    def most(self, number: int) -> int:
        """The largest of every process's number."""
        return int(self._reduced((number,), dist.ReduceOp.MAX)[0]) if self.launched else number

    def told(self, value: T) -> T:
        """The leading process's value."""
        if not self.launched:
            return value
        box = [value]
        dist.broadcast_object_list(box)
        return box[0]

    def everyones(self, value: T) -> list[T]:
        """Every process's value, in the order of ranks."""
        if not self.launched:
            return [value]
        box: list[Any] = [None] * self.size
        dist.all_gather_object(box, value)
        return box

    def led(self, work: Callable[[], T]) -> T:
        """What the leading process's work gives or raises, to all."""
        if not self.launched:
            return work()
        result, error = self.told(attempt(work) if self.leads else (None, None))
        if error is not None:
            raise error
        return result  # type: ignore[return-value]  # without an error it is what the work gave

    def _reduced(self, numbers: tuple[float, ...], operation: Any) -> list[float]:
        tensor = torch.tensor(numbers, dtype=torch.float64)  # on the CPU, whatever trains: no GPU has to be waited for
        dist.all_reduce(tensor, operation)
        return tensor.tolist()


ALONE = World()


def attempt(work: Callable[[], T]) -> tuple[T | None, Exception | Interrupted | None]:
    """What work gave, or the error it raised."""
    try:
        return work(), None
    except (Exception, Interrupted) as error:
        return None, error


@contextmanager
def joined() -> Iterator[World]:
    """The world torchrun made for this process; alone where there is none."""
    if not all(name in os.environ for name in LAUNCHED):
        yield ALONE
        return
    if dist.is_initialized():  # whoever calls us keeps it
        yield world_of_now()
        return
    # Two backends in one group: tensors go by their device, and words always by the CPU.
    both = torch.cuda.is_available() and dist.is_nccl_available()
    dist.init_process_group("cpu:gloo,cuda:nccl" if both else "gloo")
    LASTING.append(dist.group.WORLD)
    try:
        with warnings.catch_warnings():  # a token of one picture has more than one right layout
            warnings.filterwarnings("ignore", "Grad strides do not match bucket view strides")
            yield world_of_now()
    finally:
        dist.destroy_process_group()


def world_of_now() -> World:
    """This process's place, as torch and torchrun know it."""
    here, neighbours = int(os.environ.get("LOCAL_RANK", 0)), int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    return World(dist.get_rank(), dist.get_world_size(), here, neighbours, launched=True)


def is_restart() -> bool:
    """Whether torchrun started these processes again after one of them had failed."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)) > 0


def own_device(asked: torch.device, world: World) -> torch.device:
    """Of several GPUs, that of this process."""
    if asked.type != "cuda" or not world.launched:
        return asked
    if world.here >= torch.cuda.device_count():
        raise EnvironmentProblem(
            f"{world.neighbours} processes were started here, on {torch.cuda.device_count()} GPUs.",
            "One GPU for each process.",
            f"torchrun --nproc-per-node {torch.cuda.device_count()}, or --set train.device=cpu.",
        )
    torch.cuda.set_device(world.here)
    return torch.device("cuda", world.here)


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor of which every process has a part; all of them have to ask."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def local(tensor: Tensor) -> Tensor:
    """This process's part."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
