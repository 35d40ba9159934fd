"""Everything a run is at one moment, as a value: what a checkpoint holds, and all that going on needs.

The order of the pictures, their augmentation, mixing and dropout are functions of the step, so none of their state is
here. Tensors go into one safetensors file, the rest into JSON. Nothing is pickled.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from vitrail.checkpoint import container
from vitrail.errors import CheckpointError
from vitrail.model.vit import VisionTransformer
from vitrail.train import shards
from vitrail.train.distributed import ALONE, World, local
from vitrail.train.guard import NonFinite
from vitrail.train.optim import optimizer_tensors, restore_optimizer
from vitrail.train.passes import Passes

TENSORS, FACTS = "state.safetensors", "state.json"


class Progress(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """How far a run is, in numbers."""

    step: int = 0  # steps taken, over all epochs
    epochs: int = 0  # epochs closed: evaluated, and in the history
    loss_sum: float = 0.0  # of the running epoch, and the pictures it is over
    seen: int = 0
    seconds: float = 0.0  # of the running epoch, over all the processes that worked on it
    history: list[dict[str, Any]] = msgspec.field(default_factory=list)  # the rows of results.csv
    best: list[float] = msgspec.field(default_factory=list)  # of the best epoch, higher is better; ties by the second
    best_epoch: int = 0
    skipped: int = 0  # steps left out because a number was not finite
    rollbacks: int = 0
    rate: float = 1.0  # factor on the learning rate; a rollback halves it
    bad: dict[str, str] = msgspec.field(default_factory=dict)  # picture -> why it cannot be read
    finished: str = ""  # why the run is over, once it is


@dataclass
class TrainState:
    """A model, what of it learns, and how far it is."""

    model: VisionTransformer
    learning: dict[str, Tensor]
    optimizer: torch.optim.Optimizer
    average: dict[str, Tensor] | None  # of the learning tensors
    scaler: torch.amp.GradScaler | None  # fp16 only
    progress: Progress
    passes: Passes

    @property
    def evaluated(self) -> dict[str, Tensor]:
        """The learning tensors that evaluation and the kept weights use."""
        return self.learning if self.average is None else self.average


def tensors_of(state: TrainState) -> dict[str, Tensor]:
    """Every tensor of a state, by a name that says whose it is."""
    parts: dict[str, Mapping[str, Tensor]] = {
        "learning": state.learning,
        "frozen": {n: p for n, p in state.model.named_parameters() if n not in state.learning},
        "optimizer": optimizer_tensors(state.optimizer),
        "average": state.average or {},
    }
    return {f"{part}/{name}": tensor.detach() for part, named in parts.items() for name, tensor in named.items()}


def facts_of(state: TrainState, fingerprint: str) -> dict[str, Any]:
    """Everything of a state that is no tensor."""
    return {
        "schema_version": 1,
        "progress": msgspec.to_builtins(state.progress),
        "scaler": state.scaler.state_dict() if state.scaler else None,
        "labels": state.model.labels,
        "preprocess": msgspec.to_builtins(state.model.preprocess),
        "data": fingerprint,
    }


def is_sharded(state: TrainState) -> bool:
    """Whether this process has only a part of the tensors. Copies have all of them, as one process would."""
    return any(isinstance(tensor, DTensor) for tensor in state.learning.values())


def write_state(state: TrainState, fingerprint: str, world: World, folder: Path) -> None:
    """Tensors and facts; a state with a number that is not finite is refused. Every process writes its own shards."""
    tensors = tensors_of(state)
    refuse_nonfinite(tensors, state.progress.step, world if is_sharded(state) else ALONE)
    if is_sharded(state):
        shards.write(tensors, folder)
    else:
        container.write_safetensors(folder / TENSORS, {name: tensor.cpu() for name, tensor in tensors.items()})
    if world.leads:
        (folder / FACTS).write_text(json.dumps(facts_of(state, fingerprint), indent=1), encoding="utf-8")


def refuse_nonfinite(tensors: Mapping[str, Tensor], step: int, world: World) -> None:
    """Every process refuses what one of them has found."""
    bad = (n for n, t in tensors.items() if t.is_floating_point() and not torch.isfinite(local(t)).all())
    name = next((found for found in world.everyones(next(bad, "")) if found), "")
    if name:
        raise NonFinite(f"{name.partition('/')[0]} state", name.partition("/")[2], step)


def size_of(state: TrainState) -> int:
    """About how many bytes a checkpoint takes; before the first step the optimiser remembers nothing yet."""
    return sum(tensor.nbytes for tensor in tensors_of(state).values()) + 2**20


def read_facts(folder: Path) -> dict[str, Any]:
    """The JSON half of a checkpoint."""
    facts: dict[str, Any] = json.loads((folder / FACTS).read_text(encoding="utf-8"))
    return facts


@torch.no_grad()
def restore(state: TrainState, folder: Path, world: World) -> None:
    """Put a state of the same shape back to what a verified checkpoint holds, whatever the world it was written by."""
    parts: dict[str, dict[str, Tensor]] = {"learning": {}, "frozen": {}, "optimizer": {}, "average": {}}
    for name, tensor in read_tensors(state, folder, world).items():
        part, _, rest = name.partition("/")
        parts[part][rest] = tensor
    frozen = {n: p for n, p in state.model.named_parameters() if n not in state.learning}
    _copy(frozen, parts["frozen"], folder)
    _copy(state.learning, parts["learning"], folder)
    _copy(state.average or {}, parts["average"], folder)
    state.optimizer.state.clear()
    restore_optimizer(state.optimizer, parts["optimizer"])
    facts = read_facts(folder)
    state.progress = msgspec.convert(facts["progress"], Progress)
    if state.scaler and facts["scaler"]:
        state.scaler.load_state_dict(facts["scaler"])


def read_tensors(state: TrainState, folder: Path, world: World) -> dict[str, Tensor]:
    """The tensors of a checkpoint, laid out as those of the state."""
    layouts = {**dict(state.model.named_parameters()), **state.learning}
    if (folder / TENSORS).is_file() and not any(isinstance(tensor, DTensor) for tensor in layouts.values()):
        return dict(container.read(folder / TENSORS).tensors)
    return shards.read(folder, layouts, world)


def _copy(places: Mapping[str, Tensor], tensors: Mapping[str, Tensor], folder: Path) -> None:
    if places.keys() != tensors.keys() or any(places[n].shape != tensors[n].shape for n in places):
        raise CheckpointError(
            f"{folder} belongs to another model, optimiser or mode than config.toml describes.",
            "The run's own config.",
            "Undo the change, or start a new run from its weights: --model RUN/weights/last.",
        )
    for name, place in places.items():
        place.copy_(tensors[name])
