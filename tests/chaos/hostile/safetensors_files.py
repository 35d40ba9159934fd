""".safetensors files whose header lies, is a bomb, or can be read in two ways."""

# ruff: noqa: E501  (one case to a line)

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

from hostile import Case

SENSE = "makes no sense"


def file(header: bytes | str, data: bytes = b"", length: int | None = None) -> Callable[[Path], Path]:
    """A file with this header and these bytes behind it."""
    raw = header.encode() if isinstance(header, str) else header

    def build(folder: Path) -> Path:
        path = folder / "model.safetensors"
        path.write_bytes(struct.pack("<Q", len(raw) if length is None else length) + raw + data)
        return path

    return build


def tensor(dtype: str = "F32", shape: str = "[2]", offsets: str = "[0,8]") -> str:
    return f'{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}'


def one(
    dtype: str = "F32", shape: str = "[2]", offsets: str = "[0,8]", data: bytes = bytes(8)
) -> Callable[[Path], Path]:
    """A file of one tensor, named a."""
    return file(f'{{"a":{tensor(dtype, shape, offsets)}}}', data)


def two(first: str, second: str, size: int = 16) -> Callable[[Path], Path]:
    """A file of two tensors, a and b, at these offsets."""
    return file(f'{{"a":{tensor(offsets=first)},"b":{tensor(offsets=second)}}}', bytes(size))


def sparse(size: int, length: int) -> Callable[[Path], Path]:
    """A file that is large in name only, with a header said to be this long."""

    def build(folder: Path) -> Path:
        path = folder / "model.safetensors"
        with path.open("wb") as out:
            out.write(struct.pack("<Q", length) + b'{"a":')
            out.truncate(size)
        return path

    return build


def crowded(_: Path) -> bytes:
    names = {f"t{number}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for number in range(20_001)}
    return json.dumps(names, separators=(",", ":")).encode()


META = '{{"__metadata__":{0},"a":{1}}}'
FILES: dict[str, tuple[Callable[[Path], Path], str, str]] = {
    "a header of 2**63 bytes": (file("{}", length=2**63), "claims a header of 9,223,372,036,854,775,808|neither", ""),
    "a header longer than the file": (file("{}", length=3), "claims a header of 3 bytes", ""),
    "a header of 17 MB": (sparse(18 * 2**20, 17 * 2**20), "claims a header of 17,825,792", ""),
    "a header of 16 MB of nothing": (sparse(17 * 2**20, 2**24), SENSE, ""),
    "a file of 4 TB, in name only": (sparse(2**42, 2**40), "claims a header|neither", ""),
    "a header that is no JSON": (file("{hello}"), SENSE, ""),
    "a header that is a list": (file("[1,2,3]   "), "not a JSON object|neither", ""),
    "brackets nested 100,000 deep": (file('{"a":' + "[" * 100_000), SENSE, ""),
    "braces nested 100,000 deep": (file('{"a":' * 100_000), SENSE, ""),
    "five million empty lists": (file('{"a":{"shape":[' + "[]," * 5_000_000 + "[]]}}"), "cannot be read", "a"),
    "one name twice": (file(f'{{"a":{tensor()},"a":{tensor("I32")}}}', bytes(8)), "declared twice", "a"),
    "one name twice, spelled otherwise": (file(f'{{"a":{tensor()},"\\u0061":{tensor("I32")}}}', bytes(8)), "declared twice", "a"),
    "one key twice": (file('{"a":{"dtype":"F32","shape":[2],"shape":[1,2],"data_offsets":[0,8]}}', bytes(8)), "repeats a key", "a"),
    "a bomb behind a repeated key": (
        file('{"a":{"shape":[' + "[]," * 99_999 + '[]],"shape":[2],"dtype":"F32","data_offsets":[0,8]}}', bytes(8)), "cannot be read", "a"
    ),
    "a key nobody knows": (file('{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"run":"x"}}', bytes(8)), "cannot be read", "a"),
    "a type that is none": (one("F33"), "has the type 'F33'", "a"),
    "eight-bit floats": (one("F8_E4M3", "[8]"), "has the type 'F8_E4M3'", "a"),
    "two on the same bytes": (two("[0,8]", "[4,12]", 12), "is said to lie at 4 to 12", "b"),
    "two on exactly the same bytes": (two("[0,8]", "[0,8]", 8), "is said to lie at 0 to 8", "b"),
    "a hole": (two("[0,8]", "[12,20]", 20), "is said to lie at 12 to 20", "b"),
    "a start other than 0": (one(offsets="[8,16]", data=bytes(16)), "is said to lie at 8 to 16", "a"),
    "an end before the start": (one(offsets="[8,0]"), "is said to lie at 8 to 0", "a"),
    "an end behind the file": (one("F32", "[1000000000]", "[0,4000000000]"), "is 80 bytes long|header describes", ""),
    "negative offsets": (one(offsets="[-8,0]"), "not plain|cannot be read", "a"),
    "offsets with a point": (one(offsets="[0.0,8.0]"), "not plain", "a"),
    "offsets of 400 digits": (one(offsets=f"[0,{'9' * 400}]"), "cannot be read", "a"),
    "a shape that overflows": (one(shape="[4294967296,4294967296]", offsets="[0,0]", data=b""), "declares the shape", "a"),
    "a shape of 9 quintillion": (one(shape="[2147483647,2147483647]", offsets="[0,0]", data=b""), "declares .* bytes", "a"),
    "a shape of 100 sizes": (one(shape=f"[{'1,' * 99}2]"), "cannot be read", "a"),
    "a shape that does not fit": (one(shape="[3]"), "of 12 bytes is said to lie", "a"),
    "bytes left over": (one(data=bytes(9)), "its header describes", ""),
    "bytes missing": (one(data=bytes(7)), "its header describes", ""),
    "something behind the header": (file(f'{{"a":{tensor()}}}x', bytes(8)), "after the end of its header", ""),
    "metadata that is a number": (file(META.format('{"a":1}', tensor()), bytes(8)), "cannot be read at the metadata", ""),
    "metadata that nests": (file(META.format('{"a":{"b":"c"}}', tensor()), bytes(8)), SENSE, ""),
    "metadata twice": (file('{"__metadata__":{},' + META.format("{}", tensor())[1:], bytes(8)), "declared twice", ""),
    "20,001 tensors": (lambda folder: file(crowded(folder))(folder), "more than 20,000 tensors", ""),
    "a name that climbs": (file(f'{{"../../a":{tensor()}}}', bytes(8)), "path to somewhere else", "../../a"),
    "a name with escapes": (file(f'{{"a\\u001b[2J":{tensor()}}}', bytes(8)), "control characters", ""),
    "an empty name": (file(f'{{"":{tensor()}}}', bytes(8)), "a name of 0 characters", ""),
    "half a surrogate": (file(f'{{"\\ud800":{tensor()}}}', bytes(8)), "cannot be read at a name", ""),
    "bytes that are no UTF-8": (file(b'{"\xff":' + tensor().encode() + b"}", bytes(8)), "cannot be read at a name", ""),
    "NaN": (one(data=struct.pack("<2f", 1, float("nan"))), "first at element 1 of 2", "a"),
    "infinity": (one("F64", "[1]", data=struct.pack("<d", float("-inf"))), "holds NaN or infinity", "a"),
    "NaN in 16 bits": (one("BF16", "[4]", data=b"\0\0\0\0\0\0\xc0\xff"), "first at element 3 of 4", "a"),
    "truth values of 7": (one("BOOL", "[8]", data=b"\1\0\1\0\7\0\1\0"), "other than 0 and 1", "a"),
    "a page of zeros": (file(b"\0" * 100, length=0), "not a JSON object|neither", ""),
}  # fmt: skip

CASES = [Case("safetensors", name, "read", build, reason, named) for name, (build, reason, named) in FILES.items()]
