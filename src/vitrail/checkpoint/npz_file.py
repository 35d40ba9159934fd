"""Reads and writes .npz: a zip archive of .npy arrays, as numpy.savez and Google's checkpoints have it.

numpy.load would unpack whatever a 205-byte file declares; here every declared size is checked against the file before
memory is taken, and each array is streamed into its own tensor.
"""

from __future__ import annotations

import re
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import numpy as np
import torch

from vitrail.checkpoint.atomic import replacing
from vitrail.checkpoint.entry import MAX_BYTES, Entry, check_entry, each, load
from vitrail.checkpoint.safetensors_file import raw_bytes
from vitrail.checkpoint.source import ANOTHER, Source, shown
from vitrail.checkpoint.zip_directory import Member, members
from vitrail.checkpoint.zip_member import MemberReader

MAGIC = b"\x93NUMPY"
MAX_HEADER = 4096  # numpy writes 64 to 256 bytes
FREE_BYTES = 64 * 2**20  # compressed files may always unpack to this much
MAX_GROWTH = 4  # and beyond it to this many times their own size

DTYPES: Mapping[str, torch.dtype] = {
    "f8": torch.float64, "f4": torch.float32, "f2": torch.float16,
    "V2": torch.bfloat16,  # ml_dtypes' bfloat16, which numpy writes as two raw bytes
    "i8": torch.int64, "i4": torch.int32, "i2": torch.int16, "i1": torch.int8,
    "u8": torch.uint64, "u4": torch.uint32, "u2": torch.uint16, "u1": torch.uint8, "b1": torch.bool,
}  # fmt: skip
CODES = {dtype: code for code, dtype in DTYPES.items()}

# An array's header: three items in whatever order. Python 2 wrote shapes as (3L, 4L).
SIZE = r" *(?:0|[1-9][0-9]{0,18})L? *"
DESCR, ORDER = r"'descr' *: *'([^']*)'", r"'fortran_order' *: *(True|False)"
SHAPE = rf"'shape' *: *\(((?:{SIZE},(?:{SIZE},)*(?:{SIZE})?)? *)\)"
ITEM = f" *(?:{DESCR}|{ORDER}|{SHAPE}) *"
HEADER = re.compile(rf"\{{{ITEM},{ITEM},{ITEM},? *\}} *\n?")


class Array:
    """One array of the archive, as its header declares it."""

    def __init__(self, source: Source, member: Member) -> None:
        name = member.tensor
        if name == member.name:
            raise source.refuse(f"holds '{shown(name)}', which is not an array.", "An .npz holds .npy arrays.", ANOTHER)
        reader = MemberReader(source, member)
        code, self.fortran, shape = _header(source, name, reader)
        self.member, self.header_size, self.swapped = member, member.size - reader.left, code[0] == ">"
        self.entry = Entry(name, DTYPES[code[1:]], shape)
        check_entry(source, self.entry)
        if self.entry.nbytes != reader.left:
            raise source.refuse(
                f"declares {self.entry.nbytes:,} bytes, but {reader.left:,} are there.",
                "An array is as long as its shape says.",
                tensor=name,
            )

    def load(self, source: Source, *, allow_nonfinite: bool) -> torch.Tensor:
        """The numbers."""
        # A reader of its own, so that the thousands of an archive's members do not all hold an unpacker at once.
        reader = MemberReader(source, self.member)
        reader.fill(memoryview(bytearray(self.header_size)))
        entry = Entry(self.entry.name, self.entry.dtype, self.entry.shape[::-1]) if self.fortran else self.entry
        tensor = load(source, entry, reader.fill, allow_nonfinite=allow_nonfinite, swapped=self.swapped)
        return tensor.permute(*range(tensor.ndim - 1, -1, -1)).contiguous() if self.fortran else tensor


def _header(source: Source, name: str, reader: MemberReader) -> tuple[str, bool, tuple[int, ...]]:
    """Type, order and shape; the reader is left at the first number."""

    def take(count: int) -> bytes:
        if count > reader.left:
            raise source.refuse("is too short for an array.", tensor=name)
        taken = bytearray(count)
        reader.fill(memoryview(taken))
        return bytes(taken)

    start = take(8)
    if start[:6] != MAGIC or start[6] not in (1, 2) or start[7] != 0:
        # Version 3 exists for records with field names outside Latin-1.
        raise source.refuse("is not a .npy array of version 1 or 2.", tensor=name)
    length = struct.unpack("<H", take(2))[0] if start[6] == 1 else struct.unpack("<I", take(4))[0]
    if length > MAX_HEADER:
        raise source.refuse(
            f"has a header of {length:,} bytes.", f"At most {MAX_HEADER:,} are read.", ANOTHER, tensor=name
        )
    return _parse(source, name, take(length).decode("latin-1"))


def _parse(source: Source, name: str, text: str) -> tuple[str, bool, tuple[int, ...]]:
    items = [re.findall(item, text) for item in (DESCR, ORDER, SHAPE)]
    if not HEADER.fullmatch(text) or [len(found) for found in items] != [1, 1, 1]:
        raise source.refuse(
            f"has a header that makes no sense: {shown(text.strip())}.",
            "A header reads {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }.",
            tensor=name,
        )
    (code,), (order,), (shape,) = items
    if not re.fullmatch(r"[<>|=]\w+", code) or code[1:] not in DTYPES:
        raise source.refuse(
            "holds Python objects, which can run code." if "O" in code else f"has the type '{shown(code)}'.",
            f"Known types: {', '.join(DTYPES)} (V2 is bfloat16).",
            ANOTHER,
            tensor=name,
        )
    return code, order == "True", tuple(int(size) for size in re.findall("[0-9]+", shape))


def directory(source: Source) -> list[Array]:
    """Every array, its header read and checked, none of its numbers."""
    arrays = [Array(source, member) for member in members(source)]
    total = sum(array.entry.nbytes for array in arrays)
    limit = min(MAX_BYTES, max(FREE_BYTES, MAX_GROWTH * source.size))
    if total > limit:
        raise source.refuse(
            f"of {source.size:,} bytes unpacks to {total:,}.",
            f"Weights compress by little: a file of this size may unpack to {limit:,} bytes.",
            ANOTHER,
        )
    return arrays


def read(source: Source, *, allow_nonfinite: bool) -> dict[str, torch.Tensor]:
    """All arrays as tensors, in file order."""
    arrays = directory(source)

    def load_one(array: Array) -> torch.Tensor:
        return array.load(source, allow_nonfinite=allow_nonfinite)

    names = [array.entry.name for array in arrays]
    return dict(zip(names, each(load_one, arrays, source.size), strict=True))


def write(path: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    """Arrays in C order in the order given, stored as they are; the same tensors give the same bytes."""
    with replacing(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, tensor in tensors.items():
            member = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            with archive.open(member, "w", force_zip64=tensor.nbytes >= 2**31) as out:
                _write_array(out, tensor)


def _write_array(out: IO[bytes], tensor: torch.Tensor) -> None:
    code = CODES[tensor.dtype]
    mark = "|" if code in ("V2", "i1", "u1", "b1") else "<"
    header = {"descr": mark + code, "fortran_order": False, "shape": tuple(tensor.shape)}
    np.lib.format.write_array_header_1_0(out, header)
    out.write(raw_bytes(tensor))
