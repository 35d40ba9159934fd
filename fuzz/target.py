"""python -m fuzz.target READER CORPUS [libFuzzer's flags]: one reader under atheris.

A reader may do two things with an input: return what the input means, or raise CheckpointError. What it returns is
compared with what the reference library makes of the same bytes; any other exception ends the run.
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import atheris
import numpy as np
import safetensors.torch
import torch

from fuzz.seeds import npz_of, safetensors_of
from vitrail.errors import CheckpointError

with atheris.instrument_imports(include=["vitrail.checkpoint"]):
    from vitrail.checkpoint import container, files
    from vitrail.checkpoint.source import Source

FOLDER = Path(os.environ["FUZZ_FOLDER"])  # on memory, made and removed by fuzz/__main__.py: libFuzzer runs no atexit
FILE = os.fdopen(os.memfd_create("fuzz"), "r+b", buffering=0)


def source(data: bytes) -> Source:
    """The bytes as the readers see a file."""
    FILE.seek(0)
    FILE.truncate(0)
    FILE.write(data)
    return Source(Path("fuzzed"), FILE, len(data))


def weights(data: bytes) -> dict[str, torch.Tensor]:
    """Read, check the promise about memory, and hand over what was read."""
    tensors = container.contents(source(data), allow_nonfinite=True).tensors
    assert sum(tensor.nbytes for tensor in tensors.values()) <= max(64 * 2**20, 4 * len(data))
    return tensors


def npz(data: bytes) -> None:
    """Whole archives, and archives built soundly around a hostile array."""
    if data[:1] in (b"\0", b"\1"):  # otherwise hardly any mutation gets past the checksums
        data = npz_of({"cls": data[1:]}, deflate=data[0] == 1)
    found = weights(data)
    with np.load(io.BytesIO(data), allow_pickle=False) as reference:
        assert set(found) == set(reference.files)
        for name, tensor in found.items():
            expected = reference[name]
            assert tuple(tensor.shape) == expected.shape
            assert as_bytes(tensor) == expected.astype(expected.dtype.newbyteorder("<")).tobytes(), name


def safetensors_(data: bytes) -> None:
    """Whole files, and files built around a hostile header."""
    if data[:1] == b"\0":
        data = safetensors_of(data[2:], 4 * data[1]) if len(data) > 2 else data
    found = weights(data)
    reference = safetensors.torch.load(data)
    assert set(found) == set(reference)
    for name, tensor in found.items():
        assert tensor.dtype == reference[name].dtype
        assert tensor.shape == reference[name].shape
        assert as_bytes(tensor) == as_bytes(reference[name]), name


def config(data: bytes) -> None:
    """A JSON object as json reads it."""
    assert container.json_object(source(data)) == json.loads(data)


def index(data: bytes) -> None:
    """A Hugging Face index: the shards it leads to lie beside it."""
    (FOLDER / "model.safetensors.index.json").write_bytes(data)
    shards = files.weights_in(FOLDER)
    assert 1 <= len(shards) <= files.MAX_SHARDS
    assert all(shard.parent == FOLDER and Path(os.path.normpath(shard)) == shard for shard in shards), shards


def as_bytes(tensor: torch.Tensor) -> bytes:
    """The numbers in C order."""
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


READERS: dict[str, Callable[[bytes], None]] = {"npz": npz, "safetensors": safetensors_, "json": config, "index": index}


def main() -> None:
    """Hand the reader to atheris."""
    reader = READERS[sys.argv.pop(1)]

    def one_input(data: bytes) -> None:
        with suppress(CheckpointError):
            reader(data)

    torch.set_num_threads(1)
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
