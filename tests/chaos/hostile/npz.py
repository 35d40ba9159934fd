""".npz files that declare what is not there, unpack to too much, or hold what is not numbers."""

# ruff: noqa: E501  (one case to a line)

from __future__ import annotations

import io
import pickle
import struct
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from hostile import Case
from hostile.pickles import Calls, writing

DAMAGED = "is not a whole zip archive"


def npy(header: str | bytes, data: bytes = b"", version: int = 1) -> bytes:
    """One array with whatever header."""
    raw = header.encode() if isinstance(header, str) else header
    length = struct.pack("<H", len(raw)) if version == 1 else struct.pack("<I", len(raw))
    return b"\x93NUMPY" + bytes([version, 0]) + length + raw + data


def declared(shape: str, descr: str = "<f4", data: bytes = b"", order: str = "False") -> bytes:
    """One array whose header says this."""
    return npy(f"{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}\n", data)


def archive(members: Mapping[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    """An .npz of these members, as they are."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as made:
        for name, content in members.items():
            made.writestr(zipfile.ZipInfo(name), content, method)
    return out.getvalue()


def one(content: bytes, method: int = zipfile.ZIP_STORED) -> Callable[[Path], bytes]:
    """An .npz of one array, named cls."""
    return lambda _: archive({"cls.npy": content}, method)


def named(name: str) -> Callable[[Path], bytes]:
    """A sound array under this name."""
    return lambda _: archive({f"{name}.npy": declared("(1,)", data=bytes(4))})


def values(array: np.ndarray) -> Callable[[Path], bytes]:
    """These numbers, as numpy writes them."""

    def make(_: Path) -> bytes:
        out = io.BytesIO()
        np.savez(out, cls=array)
        return out.getvalue()

    return make


def objects(folder: Path) -> bytes:
    """An array of Python objects, one of which runs code when numpy unpickles it."""
    payload = pickle.dumps(Calls(exec, writing(folder)))
    return archive({"cls.npy": declared("(1,)", "|O", payload)})


def twice(_: Path) -> bytes:
    """Two members of one name."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as made:
        made.writestr(zipfile.ZipInfo("cls.npy"), declared("(1,)", data=bytes(4)))
        made.writestr(zipfile.ZipInfo("clz.npy"), declared("(1,)", data=bytes(4)))
    return out.getvalue().replace(b"clz.npy", b"cls.npy")


def many(_: Path) -> bytes:
    """25,000 members on one small array's bytes cannot be: they overlap. This is 25,000 empty ones."""
    entry = struct.pack("<4s6H3I5H2I", b"PK\1\2", 20, 20, 0, 0, 0, 33, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0) + b"a"
    local = struct.pack("<4s5H3I2H", b"PK\3\4", 20, 0, 0, 0, 33, 0, 0, 0, 1, 0) + b"a"
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 25_000, 25_000, 25_000 * len(entry), len(local), 0)
    return local + entry * 25_000 + end


def deflate_bomb(_: Path) -> bytes:
    """64 MB of zeros in 64 KB."""
    return archive({"cls.npy": declared("(16777216,)", data=bytes(2**26))}, zipfile.ZIP_DEFLATED)


def many_small_bombs(_: Path) -> bytes:
    """Each member unpacks to just what a single one may, and together they are 100 MB."""
    small = declared("(261000,)", data=bytes(261_000 * 4))
    return archive({f"a{number}.npy": small for number in range(100)}, zipfile.ZIP_DEFLATED)


def flipped(_: Path) -> bytes:
    content = bytearray(archive({"cls.npy": declared("(64,)", data=bytes(256))}))
    content[200] ^= 1
    return bytes(content)


def resized(change: int) -> Callable[[Path], bytes]:
    """A deflated member that says it unpacks to more, or less, than it does."""

    def make(_: Path) -> bytes:
        array = declared("(64,)", data=bytes(range(256)))
        said = struct.pack("<I", len(array) + change)
        return archive({"cls.npy": array}, zipfile.ZIP_DEFLATED).replace(struct.pack("<I", len(array)), said)

    return make


CODE = "{'descr': '<f4', 'fortran_order': False, 'shape': (__import__('os').system('true'),), }\n"
FILES: dict[str, tuple[Callable[[Path], bytes], str, str]] = {
    "12 GB declared in 205 bytes": (one(declared("(3000000000,)")), "declares the shape|declares 12,000,000,000", "cls"),
    "4 GB declared": (one(declared("(1000000000,)")), "declares 4,000,000,000 bytes, but 0 are there", "cls"),
    "a negative size": (one(declared("(-1,)")), "makes no sense", "cls"),
    "2**63 elements": (one(declared("(9223372036854775808,)")), "declares the shape", "cls"),
    "sizes whose product overflows": (one(declared("(2147483647, 2147483647, 2147483647)")), "declares .* bytes", "cls"),
    "nothing times 2**62": (one(declared("(0, 4611686018427387904)")), "declares the shape", "cls"),
    "40 dimensions": (one(declared(f"({'1, ' * 40})", data=bytes(4))), "declares the shape", "cls"),
    "fewer bytes than declared": (one(declared("(8,)", data=bytes(31))), "declares 32 bytes, but 31", "cls"),
    "more bytes than declared": (one(declared("(8,)", data=bytes(33))), "declares 32 bytes, but 33", "cls"),
    "zeros at 1,000 to 1": (deflate_bomb, "grows from", "cls"),
    "a hundred small bombs": (many_small_bombs, "unpacks to", ""),
    "Python objects that run code": (objects, "Python objects", "cls"),
    "records": (one(npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }\n")), "makes no sense", "cls"),
    "text": (one(declared("(1,)", "<U4", bytes(16))), "has the type '<U4'", "cls"),
    "complex numbers": (one(declared("(1,)", "<c8", bytes(8))), "has the type '<c8'", "cls"),
    "a type that is none": (one(declared("(1,)", "<f3", bytes(3))), "has the type '<f3'", "cls"),
    "a header of 4 GB": (one(b"\x93NUMPY\x02\x00\xff\xff\xff\xff{"), "header of 4,294,967,295 bytes", "cls"),
    "a header of 60 KB": (one(npy(b"(" * 60_000)), "header of 60,000 bytes", "cls"),
    "a header nested 4,000 deep": (one(npy(b"(" * 4000)), "makes no sense", "cls"),
    "a header that is code": (one(npy(CODE)), "makes no sense", "cls"),
    "a header without a shape": (one(npy("{'descr': '<f4', 'fortran_order': False, }\n")), "makes no sense", "cls"),
    "a key given twice": (one(npy(CODE.replace("(__import__('os').system('true'),)", "(1,), 'shape': (2,)"))), "no sense", "cls"),
    "version 9": (one(b"\x93NUMPY\x09\x00\x01\x00{"), "not a .npy array of version", "cls"),
    "no array at all": (one(b"hello"), "too short|not a .npy array", "cls"),
    "a member that is no array": (lambda _: archive({"readme.txt": b"hi"}), "not an array", ""),
    "one name twice": (twice, "repeated names", ""),
    "25,000 members": (many, "25,000 members", ""),
    "a name that climbs": (named("../../../tmp/x"), "path to somewhere else", "../../../tmp/x"),
    "a name from the root": (named("/etc/passwd"), "path to somewhere else", "/etc/passwd"),
    "a name for Windows": (named("..\\..\\x"), "path to somewhere else", ""),
    "a name of 60,000 letters": (named("a" * 60_000), "name of 60,000 characters|too long", ""),
    "a name with line breaks": (named("cls\n\x1b[31mcls"), "control characters", ""),
    "NaN": (values(np.array([0, np.nan], "f4")), "holds NaN or infinity, first at element 1", "cls"),
    "infinity in 16 bits": (values(np.array([np.inf], "f2")), "holds NaN or infinity", "cls"),
    "NaN in bfloat16": (values(np.array([0x7FC0], "<u2").view("V2")), "holds NaN or infinity", "cls"),
    "NaN with its bytes reversed": (values(np.array([1, np.nan], ">f8")), "first at element 1", "cls"),
    "a flipped bit": (flipped, "does not match its checksum", "cls"),
    "says it unpacks to more": (resized(+1), "declares .* are there|fewer bytes", "cls"),
    "says it unpacks to less": (resized(-1), "declares .* are there|more bytes", "cls"),
}  # fmt: skip


def as_file(make: Callable[[Path], bytes]) -> Callable[[Path], Path]:
    def build(folder: Path) -> Path:
        path = folder / "weights.npz"
        path.write_bytes(make(folder))
        return path

    return build


CASES = [Case("npz", name, "read", as_file(make), reason, tensor) for name, (make, reason, tensor) in FILES.items()]
