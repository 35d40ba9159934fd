"""Checkpoints that several processes write and any number of processes read: safetensors files, one or more for each.

torch.distributed.checkpoint decides who writes what and finds it again for other shapes of the world. It is used in
its safetensors form; nothing is pickled. That all or nothing of it is there is commit.py's work, done by the process
that leads: it makes the folder, the others write into it, and it vouches for every file.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from vitrail.runs.commit import Checkpoint, Writer
from vitrail.train.distributed import World
from vitrail.train.guard import NonFinite


def write(tensors: Mapping[str, Tensor], folder: Path) -> None:
    """This process's parts of these tensors; every process has to take part. One that fails makes all of them fail."""
    try:
        save(dict(tensors), storage_writer=HuggingFaceStorageWriter(str(folder), save_distributed=True))
    except CheckpointException as failed:
        raise next(error for error, _ in failed.failures.values()) from failed


def read(folder: Path, layouts: Mapping[str, Tensor], world: World) -> dict[str, Tensor]:
    """Every tensor of a checkpoint; those that belong to a parameter of their shape are laid out as it is now."""
    reader = HuggingFaceStorageReader(str(folder))
    tensors: dict[str, Tensor] = {}
    for name, facts in reader.read_metadata().state_dict_metadata.items():
        assert isinstance(facts, TensorStorageMetadata)  # in safetensors there is nothing else
        layout = layouts.get(name.rpartition("/")[2])
        if layout is not None and layout.shape == facts.size:
            tensors[name] = torch.zeros_like(layout, dtype=facts.properties.dtype, requires_grad=False)
        else:
            tensors[name] = torch.zeros(facts.size, dtype=facts.properties.dtype)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")  # which is what no_dist asks for
        load(tensors, storage_reader=reader, no_dist=not world.launched)
    return tensors


def committed_by_all(world: World, commit: Callable[[Writer], Checkpoint], write: Writer) -> Checkpoint:
    """The leading process commits what every process writes; all get its checkpoint, or its error."""
    asked = False

    def write_with_others(folder: Path) -> None:
        nonlocal asked
        asked = True
        world.told(folder)
        write(folder)

    if not world.leads:
        folder: Path | None = world.told(None)
        if folder is not None:
            with suppress(OSError, NonFinite):  # the leading process fails with it, and tells
                write(folder)
        return world.led(_never)

    def lead() -> Checkpoint:
        try:
            return commit(write_with_others)
        finally:
            if not asked:  # there was no room to begin with
                world.told(None)

    return world.led(lead)


def _never() -> Checkpoint:
    raise AssertionError("only the leading process commits")
