"""Reads and writes .safetensors: a JSON header, then the tensors' bytes end to end.

The header is checked against our own limits before anything is allocated. Large tensors are mapped, not copied, where
nobody else can write to the file; `Source.maps_allowed` says why that matters.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, groupby
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
import torch

from vitrail.checkpoint.atomic import replacing
from vitrail.checkpoint.entry import (
    CHUNK,
    DTYPES,
    MAX_RANK,
    MAX_TENSORS,
    Entry,
    check_entry,
    check_name,
    check_values,
    each,
    load,
)
from vitrail.checkpoint.source import ANOTHER, Cursor, Source, shown

MAX_HEADER = 16 * 2**20
WORTH_MAPPING = 2**20  # bytes; below it a copy is as fast
METADATA = "__metadata__"
NAMES = {dtype: name for name, dtype in DTYPES.items()}

# `"name": {...}` and what follows it. Every value is a flat object, so no nesting has to be understood; possessive
# quantifiers keep the search linear. A JSON library would hide repeated names, and build whatever a bomb spells out.
STRING, SPACE = rb'"(?:[^"\\]++|\\.)*+"', rb"[ \t\r\n]*+"
PAIR = re.compile(
    SPACE + rb"(" + STRING + rb")" + SPACE + rb":" + SPACE
    + rb"(\{(?:[^\"{}]++|" + STRING + rb")*+\})" + SPACE + rb"([,}])", re.DOTALL
)  # fmt: skip
TEXT, ODD_NUMBER = re.compile(STRING), re.compile(rb"[-+.eE]")  # -0, 1.0 and 1e0 are not how sizes are written
EMPTY = re.compile(rb"\{" + SPACE + rb"\}" + SPACE)

Size = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Place = tuple[Entry, int]  # a tensor, and the offset of its bytes in the file
T = TypeVar("T")


class Declared(msgspec.Struct, forbid_unknown_fields=True):
    """One tensor as the header spells it."""

    dtype: str
    shape: Annotated[list[Size], msgspec.Meta(max_length=MAX_RANK)]
    data_offsets: tuple[Size, Size]


def looks_like(head: bytes) -> bool:
    """Whether a file that starts with these bytes is a safetensors file."""
    return len(head) > 8 and head[8:9] == b"{" and int.from_bytes(head[:8], "little") <= MAX_HEADER


def directory(source: Source) -> tuple[dict[str, Place], dict[str, str]]:
    """Every tensor with the place of its bytes in the file, in file order, and the metadata."""
    if source.size < 10:
        raise source.refuse(f"is {source.size} bytes long.", "A safetensors file has at least 10.")
    (length,) = struct.unpack("<Q", source.read(0, 8))
    if length > min(MAX_HEADER, source.size - 8):
        raise source.refuse(
            f"claims a header of {length:,} bytes in a file of {source.size:,}.",
            f"A safetensors header is at most {MAX_HEADER:,} bytes and lies inside the file.",
        )
    declared, metadata = _parse(source, source.read(8, length))
    return _place(source, declared, 8 + length), metadata


def _parse(source: Source, header: bytes) -> tuple[dict[str, Declared], dict[str, str]]:
    declared: dict[str, Declared] = {}
    metadata: dict[str, str] | None = None
    if EMPTY.fullmatch(header):
        return {}, {}
    if not header.startswith(b"{"):
        raise source.refuse("has a header that is not a JSON object.", "A safetensors header starts with '{'.")
    position, more = 1, b","
    while more == b",":
        pair = PAIR.match(header, position)
        if pair is None:
            raise source.refuse(
                f"has a header that makes no sense at byte {position:,}.",
                'A safetensors header reads {"name": {"dtype": …, "shape": […], "data_offsets": […]}, …}.',
            )
        key, value, more = pair.groups()
        position = pair.end()
        name = _decode(source, key, str, "a name")
        if name in declared or (name == METADATA and metadata is not None):
            raise source.refuse("is declared twice.", "Every name is declared once.", tensor=name)
        if len(declared) >= MAX_TENSORS:
            raise source.refuse(f"declares more than {MAX_TENSORS:,} tensors.", "", ANOTHER)
        if name == METADATA:
            metadata = _decode(source, value, dict[str, str], "the metadata")
        else:
            check_name(source, name)
            if ODD_NUMBER.search(TEXT.sub(b"", value)):
                raise source.refuse("is described by numbers that are not plain.", "Sizes read 768.", tensor=name)
            declared[name] = _decode(source, value, Declared, f"tensor '{shown(name)}'")
        _refuse_repeated_keys(source, value, name)
    if header[position:].strip(b" \t\r\n"):
        raise source.refuse(f"has something after the end of its header, at byte {position:,}.")
    return declared, metadata or {}


def _decode(source: Source, text: bytes, kind: type[T], what: str) -> T:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise source.refuse(f"has a header that cannot be read at {what}: {shown(str(error))}.") from error


def _refuse_repeated_keys(source: Source, value: bytes, name: str) -> None:
    """`{"shape": [1], "shape": [2]}` means one thing to one reader and another to the next."""
    pairs: list[tuple[str, object]] = json.loads(value, object_pairs_hook=lambda pairs: pairs)  # small and flat by now
    if len(dict(pairs)) != len(pairs):
        raise source.refuse("repeats a key.", "Every key is given once.", tensor=name)


def _place(source: Source, declared: dict[str, Declared], start: int) -> dict[str, Place]:
    """Tensors lie end to end from the header to the end of the file: no gap, no overlap, nothing left over."""
    placed: dict[str, Place] = {}
    end = 0
    for name, tensor in sorted(declared.items(), key=lambda item: item[1].data_offsets):
        if tensor.dtype not in DTYPES:
            raise source.refuse(
                f"has the type '{shown(tensor.dtype)}'.", f"Known types: {', '.join(DTYPES)}.", ANOTHER, tensor=name
            )
        entry = Entry(name, DTYPES[tensor.dtype], tuple(tensor.shape))
        check_entry(source, entry)
        first, last = tensor.data_offsets
        if first != end or last - first != entry.nbytes:
            raise source.refuse(
                f"of {entry.nbytes:,} bytes is said to lie at {first:,} to {last:,}; the next free byte is {end:,}.",
                "Tensors lie end to end and each is as long as its shape says.",
                tensor=name,
            )
        placed[name] = entry, start + first
        end = last
    if start + end != source.size:
        raise source.refuse(
            f"is {source.size:,} bytes long, but its header describes {start + end:,}.",
            "The header accounts for every byte.",
            "It was cut short or is damaged: fetch or copy it again.",
        )
    return placed


def read(source: Source, *, allow_nonfinite: bool) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """All tensors and the metadata."""
    placed, metadata = directory(source)
    runs = list(_runs(placed.values()))
    worth = [number for number, run in enumerate(runs) if _worth_mapping(run[0])]
    to_map = set(worth[: max(0, source.maps_allowed())])

    def load_run(number: int) -> list[torch.Tensor]:
        if number in to_map:
            with suppress(OSError):  # some file systems cannot be mapped
                return _mapped(source, runs[number], allow_nonfinite=allow_nonfinite)
        return [
            load(source, entry, Cursor(source, offset).fill, allow_nonfinite=allow_nonfinite)
            for entry, offset in runs[number]
        ]

    loaded = each(load_run, range(len(runs)), source.size)
    return dict(zip(placed, chain.from_iterable(loaded), strict=True)), metadata


def _runs(places: Iterable[Place]) -> Iterator[list[Place]]:
    """The tensors one by one, but neighbours of one shape together: they share a map, and can be joined in place.

    So are the queries, keys and values of a layer in the files we write. A quarter of a model is not copied then.
    """
    for _, alike in groupby(places, key=lambda place: (place[0].dtype, place[0].shape)):
        run = list(alike)
        yield from [run] if _worth_mapping(run[0]) else ([place] for place in run)


def _worth_mapping(place: Place) -> bool:
    entry, offset = place
    return entry.nbytes >= WORTH_MAPPING and offset % entry.dtype.itemsize == 0


def _mapped(source: Source, run: Sequence[Place], *, allow_nonfinite: bool) -> list[torch.Tensor]:
    """The tensors as private views of the file, in a map of their own: it is freed when they are."""
    (first, offset), tensors = run[0], []
    flat = source.map(offset, first.nbytes * len(run))
    for (entry, _), mapped in zip(run, flat.split(first.nbytes), strict=True):
        raw = mapped.numpy()
        for start in range(0, entry.nbytes, CHUNK):
            check_values(source, entry, raw[start : start + CHUNK], start, allow_nonfinite=allow_nonfinite)
        tensors.append(mapped.view(entry.dtype).view(entry.shape))
    return tensors


def write(path: Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str]) -> None:
    """The same tensors give the same bytes: wide numbers first, so that each is aligned, else in the order given."""
    order = sorted(tensors, key=lambda name: -tensors[name].dtype.itemsize)
    header: dict[str, object] = {METADATA: dict(sorted(metadata.items()))} if metadata else {}
    end = 0
    for name in order:
        tensor = tensors[name]
        begin, end = end, end + tensor.nbytes
        header[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with replacing(path) as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in order:
            file.write(raw_bytes(tensors[name]))


def raw_bytes(tensor: torch.Tensor) -> memoryview:
    """The tensor's numbers in C order, as bytes."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().data
