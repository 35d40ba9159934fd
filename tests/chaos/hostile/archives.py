"""Archives that mean one thing to one reader and another to the next, and files that are something else."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from hostile import Case
from hostile.npz import archive, declared

DAMAGED = "is not a whole zip archive"
GOOD = archive({"cls.npy": declared("(4,)", data=bytes(16)), "head.npy": declared("(4,)", data=bytes(16))})
CENTRAL, END = GOOD.index(b"PK\1\2"), GOOD.index(b"PK\5\6")
SECOND = GOOD.index(b"PK\1\2", CENTRAL + 4)


def patched(*changes: tuple[int, bytes], content: bytes = GOOD) -> Callable[[Path], bytes]:
    """The sound archive with some bytes replaced."""

    def make(_: Path) -> bytes:
        out = bytearray(content)
        for at, replacement in changes:
            out[at : at + len(replacement)] = replacement
        return bytes(out)

    return make


def inserted(at: int, extra: bytes, *changes: tuple[int, bytes]) -> Callable[[Path], bytes]:
    """The sound archive with bytes inserted, and others replaced afterwards."""
    return patched(*changes, content=GOOD[:at] + extra + GOOD[at:])


def u16(value: int) -> bytes:
    return struct.pack("<H", value)


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def taped(_: Path) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tape:
        entry = tarfile.TarInfo("model.safetensors")
        entry.size = 4
        tape.addfile(entry, io.BytesIO(b"abcd"))
    return out.getvalue()


def nested(_: Path) -> bytes:
    return archive({"inner.npz": GOOD})


def squeezed(method: int) -> Callable[[Path], bytes]:
    return lambda _: archive({"cls.npy": declared("(4,)", data=bytes(16))}, method)


def array(_: Path) -> bytes:
    out = io.BytesIO()
    np.save(out, np.zeros(3))
    return out.getvalue()


FILES: dict[str, tuple[Callable[[Path], bytes], str]] = {
    "a comment behind the end": (patched((END + 20, u16(4)), content=GOOD + b"PK\5\6"), DAMAGED),
    "data in front": (lambda _: b"PK\3\4" + bytes(60) + GOOD, DAMAGED),
    "two ends": (lambda _: GOOD + GOOD[END:], DAMAGED),
    "two archives": (lambda _: GOOD + GOOD, DAMAGED),
    "two members on the same bytes": (patched((SECOND + 42, u32(0))), "shares bytes|described differently"),
    "a member inside another": (patched((SECOND + 42, u32(40))), "shares bytes"),
    "a member behind the directory": (patched((SECOND + 42, u32(CENTRAL))), "shares bytes|described differently"),
    "a member at 4 GB": (patched((SECOND + 42, u32(0xFFFFFFFE))), "outside the file"),
    "another name in place": (patched((30, b"clz")), "described differently"),
    "another size in place": (patched((22, u32(9999))), "described differently"),
    "another method in place": (patched((8, u16(8))), "described differently"),
    "two sizes for stored bytes": (patched((CENTRAL + 20, u32(5))), "stored as 5 bytes"),
    "an encrypted member": (patched((CENTRAL + 8, u16(1)), (6, u16(1))), "is encrypted"),
    "a masked directory": (patched((CENTRAL + 8, u16(0x2000))), "zip feature"),
    "bzip2 inside": (squeezed(zipfile.ZIP_BZIP2), "method 12|damaged"),
    "lzma inside": (squeezed(zipfile.ZIP_LZMA), "method 14|damaged|zip feature"),
    "a method nobody knows": (patched((CENTRAL + 10, u16(99))), "method 99"),
    "a zip64 size that is not there": (patched((CENTRAL + 20, b"\xff" * 8)), "zip64 size is missing"),
    "a zip64 locator to elsewhere": (inserted(END, b"PK\6\7" + bytes(16)), DAMAGED),
    "more members than listed": (patched((END + 8, u16(3) * 2)), DAMAGED),
    "fewer members than listed": (patched((END + 8, u16(1) * 2)), DAMAGED),
    "65,535 members": (patched((END + 8, b"\xff" * 4)), "65,535 members"),
    "the second disk of two": (patched((END + 4, u16(1))), "several disks"),
    "a directory elsewhere": (patched((END + 16, u32(1))), DAMAGED),
    "a directory of 4 GB": (patched((END + 12, b"\xfe\xff\xff\xff")), DAMAGED),
    "cut in the middle": (lambda _: GOOD[: len(GOOD) // 2], DAMAGED),
    "cut by one byte": (lambda _: GOOD[:-1], DAMAGED),
    "an archive in an archive": (nested, "not an array"),
    "a tar": (taped, "tar archive"),
    "gzip": (lambda _: gzip.compress(GOOD), "gzip"),
    "bzip2": (lambda _: bz2.compress(GOOD), "bzip2"),
    "xz": (lambda _: lzma.compress(GOOD), "xz"),
    "a single array": (array, r"single array \(\.npy\)"),
    "an HDF5 file": (lambda _: b"\x89HDF\r\n\x1a\n" + bytes(64), "HDF5"),
    "a web page": (lambda _: b"<!DOCTYPE html><title>404</title>", "web page"),
    "a Git LFS pointer": (lambda _: b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "Git LFS"),
    "JSON": (lambda _: b'{"weight_map": {}}', "JSON text"),
    "random bytes": (lambda _: bytes(np.random.default_rng(0).integers(128, 256, 4096, dtype=np.uint8)), "neither"),
    "nothing": (lambda _: b"", "is empty"),
}  # fmt: skip


def as_file(make: Callable[[Path], bytes]) -> Callable[[Path], Path]:
    def build(folder: Path) -> Path:
        path = folder / "weights.npz"
        path.write_bytes(make(folder))
        return path

    return build


CASES = [Case("archive", name, "read", as_file(make), reason) for name, (make, reason) in FILES.items()]
