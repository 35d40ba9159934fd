"""Reads and writes named tensors. Knows nothing about what the names mean, and never runs what a file contains.

    container.read("ViT-B_16.npz").tensors["cls"]

What a file is, its content decides, not its name. A pickle is refused here, always: `vitrail.checkpoint.pickled`
reads one in a child process when the user asks for that.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch

from vitrail.checkpoint import npz_file, safetensors_file
from vitrail.checkpoint.entry import naming_problem
from vitrail.checkpoint.source import ANOTHER, Source, opened, shown
from vitrail.errors import CheckpointError

JSON_LIMIT = 4 * 2**20  # the config of a 21,843-class model, label names both ways, is 1.5 MB
JSON_DEPTH = 32
JSON_VALUES = 500_000  # 4 MB of nothing but brackets would become 100 MB of lists


@dataclass(frozen=True)
class Container:
    """The named tensors of one file and the text that came with them.

    Every tensor owns its memory, so whoever translates them may `pop` one after the other and never hold two models.
    """

    tensors: dict[str, torch.Tensor]
    metadata: dict[str, str]
    path: Path

    @property
    def dtypes(self) -> dict[str, torch.dtype]:
        """The number format each tensor is stored in."""
        return {name: tensor.dtype for name, tensor in self.tensors.items()}


def read(path: Path, *, allow_nonfinite: bool = False) -> Container:
    """All tensors of a .npz or .safetensors file, checked before memory is taken."""
    with opened(Path(path)) as source:
        return contents(source, allow_nonfinite=allow_nonfinite)


def contents(source: Source, *, allow_nonfinite: bool = False) -> Container:
    """All tensors of an open file."""
    if _kind(source) == "npz":
        return Container(npz_file.read(source, allow_nonfinite=allow_nonfinite), {}, source.path)
    tensors, metadata = safetensors_file.read(source, allow_nonfinite=allow_nonfinite)
    return Container(tensors, metadata, source.path)


def write_safetensors(
    path: Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str] | None = None
) -> None:
    """A .safetensors file; `format: pt` is added because transformers asks for it."""
    _check_writable(path, tensors)
    safetensors_file.write(Path(path), tensors, {"format": "pt", **(metadata or {})})


def write_npz(path: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    """A .npz file as numpy.savez writes it; bfloat16 as two raw bytes, as ml_dtypes does."""
    _check_writable(path, tensors)
    npz_file.write(Path(path), tensors)


def _check_writable(path: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    """What is written can be read back."""
    for name, tensor in tensors.items():
        if problem := naming_problem(name):
            raise CheckpointError(f"{path}: tensor '{shown(name)}' {problem}", "Names are short and printable.")
        if tensor.dtype not in safetensors_file.NAMES:
            raise CheckpointError(f"{path}: tensor '{name}' is {tensor.dtype}.", "Weights are plain numbers.")


def read_json(path: Path, *, limit: int = JSON_LIMIT) -> dict[str, Any]:
    """The JSON object in a config file, of limited size and depth."""
    with opened(Path(path)) as source:
        return json_object(source, limit)


def json_object(source: Source, limit: int = JSON_LIMIT) -> dict[str, Any]:
    """The JSON object an open file consists of."""
    if source.size > limit:
        raise source.refuse(f"is {source.size:,} bytes long.", f"A config is at most {limit:,} bytes.", ANOTHER)
    text = source.read(0, source.size)
    if sum(text.count(mark) for mark in (b",", b"[", b"{")) > JSON_VALUES:
        raise source.refuse("holds too many values.", f"A config has at most {JSON_VALUES:,}.", ANOTHER)
    try:
        content = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise source.refuse(
            f"is not a JSON object: {shown(str(error))}.", "A config is one JSON object, {…}."
        ) from error
    if _depth(content) > JSON_DEPTH:
        raise source.refuse("is nested too deeply.", f"A config nests at most {JSON_DEPTH} levels.", ANOTHER)
    return content


def _depth(content: object) -> int:
    level, depth = [content], 0
    while level:
        depth += 1
        inside = [v.values() if isinstance(v, dict) else v for v in level if isinstance(v, dict | list)]
        level = [item for group in inside for item in group]
    return depth


ZIP = (b"PK\3\4", b"PK\5\6")  # with members, without
TEXT_PICKLE = re.compile(rb"[(}\]][dlqt]|c[\w.]+\n[\w.]+\n")  # protocols 0 and 1: a dict, a list, a call
TAIL = 2**16
TAR_MARK = slice(257, 262)
FOREIGN = {
    b"version https://git-lfs": ("is a Git LFS pointer, not the weights.", "Run `git lfs pull` in its repository."),
    b"<": ("is a web page, not weights: a download that went wrong.", "Download it again."),
    b"{": ("is JSON text, not weights.", "Name the weights, or the folder that holds both."),
    b"\x89HDF": ("is an HDF5 file (Keras).", "Save its weights with numpy.savez."),
    b"\x93NUMPY": ("is a single array (.npy).", "Save named arrays with numpy.savez."),
    b"\x1f\x8b": ("is compressed (gzip).", "Unpack it first."),
    b"BZh": ("is compressed (bzip2).", "Unpack it first."),
    b"\xfd7zXZ": ("is compressed (xz).", "Unpack it first."),
    b"7z\xbc\xaf": ("is compressed (7z).", "Unpack it first."),
    b"ustar": ("is a tar archive.", "Unpack it first."),
    b"GGUF": ("is a GGUF file (llama.cpp).", "Take the .safetensors it was made from."),
}


def _kind(source: Source) -> str:
    """npz or safetensors, by content; everything else is refused with what it is."""
    head = source.read(0, min(source.size, 512))
    if head.startswith(ZIP):
        tail = source.read(max(0, source.size - TAIL), min(source.size, TAIL))
        if b".pkl" in head + tail:  # torch.save writes archive/data.pkl
            raise pickle_refused(source)
        return "npz"
    # Before the pickles: a header of 640 bytes starts with \x80\x02, as a pickle of protocol 2 does.
    if safetensors_file.looks_like(head):
        return "safetensors"
    if looks_like_pickle(head):
        raise pickle_refused(source)
    for start, (reason, fix) in FOREIGN.items():
        if head.lstrip().startswith(start) or head[TAR_MARK].startswith(start):
            raise source.refuse(reason, "Weights come as .safetensors or .npz.", fix)
    if head and source.path.suffix == ".safetensors":
        return "safetensors"  # whose reader says precisely what is wrong
    raise source.refuse(
        "is empty." if not head else f"is neither .npz nor .safetensors; it starts with {head[:8]!r}.",
        "Weights come as .safetensors or .npz.",
        "Check that the download is complete and that this is the right file.",
    )


def looks_like_pickle(head: bytes) -> bool:
    """Whether a file that starts with these bytes is a bare pickle, of any protocol."""
    protocol_2_up = len(head) > 1 and head[0] == 0x80 and 1 <= head[1] <= 5
    return protocol_2_up or TEXT_PICKLE.match(head) is not None


def pickle_refused(source: Source) -> CheckpointError:
    """The refusal that names the command which reads a pickle safely."""
    name, out = shlex.quote(str(source.path)), shlex.quote(str(source.path.with_suffix("")))
    return source.refuse(
        "is a pickle: opening it can run whatever code it contains.",
        "Weights come as .safetensors or .npz.",
        f"If you trust its origin: vitrail convert --from-pickle {name} {out}",
    )
