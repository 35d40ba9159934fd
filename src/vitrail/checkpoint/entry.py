"""One tensor as a file declares it: what may be declared, and how its bytes become a torch tensor.

Both readers share these limits. They are far above any Vision Transformer and far below what hurts.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch

from vitrail.checkpoint.source import PARALLEL, Source, shown
from vitrail.errors import EnvironmentProblem

MAX_TENSORS = 20_000  # ViT-22B unrolled has under 1,000
MAX_NAME = 512
MAX_RANK = 8  # a scan-stacked attention kernel has 4
MAX_DIM = 2**31 - 1
MAX_BYTES = 64 * 2**30  # DINOv3-7B in float32 is 27 GB

CHUNK = 2**18  # read and checked piece by piece, while the piece is in the processor's cache

DTYPES: Mapping[str, torch.dtype] = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8,
    "U64": torch.uint64, "U32": torch.uint32, "U16": torch.uint16, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip

EXPONENTS: Mapping[torch.dtype, int] = {  # the bit pattern of infinity
    torch.float64: 0x7FF0000000000000, torch.float32: 0x7F800000, torch.float16: 0x7C00, torch.bfloat16: 0x7F80,
}  # fmt: skip

WORTH_THREADS = 2**25  # bytes

Item = TypeVar("Item")
Result = TypeVar("Result")
Bytes = npt.NDArray[np.uint8]
Fill = Callable[[memoryview], None]  # puts the tensor's next bytes into the buffer


@dataclass(frozen=True, slots=True)
class Entry:
    """Name, type and shape of one tensor, before any of its bytes are read."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """How many numbers it holds."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """How many bytes they take."""
        return self.elements * self.dtype.itemsize


def naming_problem(name: str) -> str:
    """What is wrong with a tensor's name: it must be short, printable, and not read like a path to somewhere else."""
    if not 0 < len(name) <= MAX_NAME:
        return f"has a name of {len(name):,} characters."
    if not name.isprintable():
        return "has control characters in its name."
    if name.startswith("/") or "\\" in name or name[1:2] == ":" or ".." in name.split("/"):
        return "has a name that reads like a path to somewhere else."
    return ""


def check_name(source: Source, name: str) -> None:
    """Refuse a name that is unfit."""
    if problem := naming_problem(name):
        raise source.refuse(problem, f"Names are 1 to {MAX_NAME} printable characters.", tensor=name)


def check_entry(source: Source, entry: Entry) -> None:
    """Shape and size are within what a model can have; Python's integers cannot overflow on the way."""
    if len(entry.shape) > MAX_RANK or any(not 0 <= size <= MAX_DIM for size in entry.shape):
        raise source.refuse(
            f"declares the shape {shown(str(list(entry.shape)))}.",
            f"A shape has at most {MAX_RANK} sizes, each from 0 to {MAX_DIM:,}.",
            tensor=entry.name,
        )
    if entry.nbytes > MAX_BYTES:
        raise source.refuse(
            f"declares {entry.nbytes:,} bytes.", f"A model is at most {MAX_BYTES:,} bytes.", tensor=entry.name
        )


def load(source: Source, entry: Entry, fill: Fill, *, allow_nonfinite: bool, swapped: bool = False) -> torch.Tensor:
    """The tensor, read into memory of its own; NaN and infinity are refused unless allowed."""
    flat = _allocate(source, entry)
    buffer = flat.numpy()
    for start in range(0, entry.nbytes, CHUNK):
        piece = buffer[start : start + CHUNK]
        fill(piece.data)
        if swapped:
            piece.view(f"u{entry.dtype.itemsize}").byteswap(inplace=True)
        check_values(source, entry, piece, start, allow_nonfinite=allow_nonfinite)
    return flat.view(entry.dtype).view(entry.shape)


def check_values(source: Source, entry: Entry, raw: Bytes, start: int = 0, *, allow_nonfinite: bool) -> None:
    """Refuse NaN, infinity and impossible booleans among these bytes, which lie `start` bytes into the tensor."""
    if entry.dtype == torch.bool and raw.max(initial=0) > 1:
        raise source.refuse("is boolean but holds bytes other than 0 and 1.", tensor=entry.name)
    if allow_nonfinite or entry.dtype not in EXPONENTS:
        return
    width, exponent = entry.dtype.itemsize, EXPONENTS[entry.dtype]
    # As integers without their sign, NaN and infinity are the numbers from the all-ones exponent up. This runs at
    # 18 GB/s on one core where torch.isfinite runs at 1.4, and starts no threads.
    bits = raw.view(f"u{width}") & ((1 << (8 * width - 1)) - 1)
    if bits.max(initial=0) >= exponent:
        first = start // width + int((bits >= exponent).argmax())
        raise source.refuse(
            f"holds NaN or infinity, first at element {first:,} of {entry.elements:,}.",
            "Weights are finite numbers.",
            "Use a checkpoint from before the training diverged, or read it with --allow-nonfinite.",
            tensor=entry.name,
        )


def each(work: Callable[[Item], Result], items: Sequence[Item], nbytes: int) -> list[Result]:
    """Do the work for every item; with several threads where it is about many bytes.

    Copying 1.2 GB took 0.63 s with one thread and 0.35 s with two (2 cores, file in the page cache). Each thread takes
    every n-th item: handing out some hundred maps one by one took as long as making them.
    """
    threads = min(4, os.cpu_count() or 1)
    if nbytes < WORTH_THREADS or not PARALLEL or threads == 1:
        return [work(item) for item in items]
    results: dict[int, Result] = {}

    def share(first: int) -> None:
        for number in range(first, len(items), threads):
            results[number] = work(items[number])

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(share, range(threads)))
    return [results[number] for number in range(len(items))]


def _allocate(source: Source, entry: Entry) -> torch.Tensor:
    try:
        return torch.empty(entry.nbytes, dtype=torch.uint8)
    except (MemoryError, RuntimeError) as error:  # torch reports a failed allocation as RuntimeError
        raise EnvironmentProblem(
            f"{shown(str(source.path))}: no memory for tensor '{shown(entry.name)}' of {entry.nbytes:,} bytes.",
            f"Loading takes as much memory as the file, {source.size:,} bytes.",
            "Close other programs or use a smaller model.",
        ) from error
