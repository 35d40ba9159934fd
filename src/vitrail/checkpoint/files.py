"""What lies at a path: the weights, in one file or in shards, and the JSON files beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from torch import Tensor

from vitrail.checkpoint import container, pickled
from vitrail.checkpoint.place import locate
from vitrail.checkpoint.source import shown
from vitrail.errors import CheckpointError

INDEX = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
WEIGHTS = ("model.safetensors", "model.npz", "pytorch_model.bin")
ENDINGS = (".safetensors", ".npz", ".pth", ".pt", ".bin")  # looked for in this order where no usual name is there
MAX_SHARDS = 256


@dataclass
class Found:
    """Tensors under the names their file gives them, and what was said beside them."""

    path: Path
    tensors: dict[str, Tensor]
    metadata: dict[str, str] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)  # config.json, of transformers, of timm or ours
    preprocessor: dict[str, Any] | None = None

    @property
    def block(self) -> dict[str, Any]:
        """What vitrail wrote for itself, where others have no field."""
        block = self.config.get("vitrail")
        if block is None and "vitrail" in self.metadata:
            try:
                block = msgspec.json.decode(self.metadata["vitrail"], type=dict[str, Any])
            except msgspec.MsgspecError as error:
                raise CheckpointError(f"{self.path}: its vitrail metadata is no JSON: {error}.") from None
        if not isinstance(block or {}, dict):
            raise CheckpointError(f"{self.path}: the 'vitrail' entry of config.json is no object.", "", "Remove it.")
        return block or {}


def find(path: Path | str, *, from_pickle: bool = False, allow_nonfinite: bool = False) -> Found:
    """Everything at `path`: a file, a folder, a run, the word demo, or hf:owner/name on a hub."""
    path = locate(path, from_pickle=from_pickle)
    if path.is_dir():
        weights, beside = weights_in(path), path
    else:
        weights, beside = [path], path.parent
    found = Found(path, {})
    for file in weights:
        read = pickled.read if from_pickle and is_pickle(file) else container.read
        part = read(file, allow_nonfinite=allow_nonfinite)
        twice = next((name for name in part.tensors if name in found.tensors), None)
        if twice is not None:
            raise CheckpointError(f"{shown(str(file))}: tensor '{shown(twice)}' is in another shard too.", "", "")
        found.tensors |= part.tensors
        found.metadata |= part.metadata
    _check_index(path, found.tensors)
    own = path.with_suffix(".json")
    found.config = _json(own if path.is_file() and own.is_file() else beside / "config.json") or {}
    found.preprocessor = _json(beside / "preprocessor_config.json")
    return found


def is_pickle(file: Path) -> bool:
    """Whether a file has a pickle's usual name."""
    return file.suffix in (".pth", ".pt", ".bin", ".pkl", ".tar", ".ckpt")


def weights_in(folder: Path) -> list[Path]:
    """The weight files of a folder: its shards, or its one file."""
    for name in INDEX:
        if (folder / name).is_file():
            return _shards(folder / name)
    for name in WEIGHTS:
        if (folder / name).is_file():
            return [folder / name]
    for ending in ENDINGS:
        files = sorted(file for file in folder.glob(f"*{ending}") if file.is_file())
        if len(files) == 1:
            return files
        if files:
            raise CheckpointError(
                f"{folder} holds {len(files)} weight files: {', '.join(file.name for file in files[:6])}.",
                "One model to a folder.",
                f"Name one of them: {files[0]}",
            )
    raise CheckpointError(
        f"{folder} holds no weights.", f"A {WEIGHTS[0]}, a .npz, or shards with an index.", "Check the path."
    )


def _shards(index: Path) -> list[Path]:
    names = sorted({str(name) for name in _weight_map(index).values()})
    if not 1 <= len(names) <= MAX_SHARDS:
        raise CheckpointError(f"{index} names {len(names)} shards.", f"1 to {MAX_SHARDS}.", "")
    for name in names:
        if Path(name).name != name or name in ("", ".", ".."):
            raise CheckpointError(
                f"{index} names the shard '{shown(name)}'.", "Shards lie in the folder of their index.", ""
            )
    return [index.parent / name for name in names]


def _weight_map(index: Path) -> dict[str, Any]:
    weight_map = container.read_json(index, limit=16 * 2**20).get("weight_map")
    if not isinstance(weight_map, dict):
        raise CheckpointError(f"{index} has no weight_map.", "It says which shard holds which tensor.", "")
    return weight_map


def _check_index(path: Path, tensors: dict[str, Tensor]) -> None:
    """Every tensor an index promises is there."""
    index = next((path / name for name in INDEX if path.is_dir() and (path / name).is_file()), None)
    promised: Sequence[str] = list(_weight_map(index)) if index else ()
    absent = [name for name in promised if name not in tensors]
    if absent:
        raise CheckpointError(
            f"{index} promises {len(absent)} tensors that no shard holds, such as '{shown(absent[0])}'.",
            "Every tensor of the index is in its shard.",
            "Fetch the missing shard.",
        )


def _json(file: Path) -> dict[str, Any] | None:
    return container.read_json(file) if file.is_file() else None
