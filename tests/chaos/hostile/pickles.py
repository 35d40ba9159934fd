"""Pickles that run code when opened, hide as something else, or ask for more memory and time than there is."""

# ruff: noqa: E501  (one case to a line)

from __future__ import annotations

import io
import pickle
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import torch

from hostile import CANARY, Case

REFUSED, NOT_WEIGHTS = "is a pickle: opening it can run", "not weights|cannot be read as weights"


def text(module: str, name: str, argument: str) -> bytes:
    """A pickle of protocol 0 that calls module.name(argument)."""
    return f"c{module}\n{name}\n(V{argument}\ntR.".encode()


def binary(module: str, name: str, argument: str) -> bytes:
    """The same in protocol 2."""
    raw = argument.encode()
    return b"\x80\x02" + f"c{module}\n{name}\n".encode() + b"(X" + struct.pack("<I", len(raw)) + raw + b"tR."


def stack_global(module: str, name: str, argument: str) -> bytes:
    """The same in protocol 4."""
    words = b"".join(b"\x8c" + bytes([len(word)]) + word.encode() for word in (module, name))
    return b"\x80\x04" + words + b"\x93(X" + struct.pack("<I", len(argument)) + argument.encode() + b"tR."


def zipped(data: bytes, method: int = zipfile.ZIP_STORED, storages: dict[str, bytes] | None = None) -> bytes:
    """What torch.save writes, around this pickle."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        members = {"data.pkl": data, "version": b"3\n", "byteorder": b"little", **(storages or {})}
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(f"archive/{name}"), content, method)
    return out.getvalue()


def legacy(data: bytes) -> bytes:
    """What torch.save wrote before 1.6, around this pickle."""
    start = (0x1950A86A20F9469CFC6C, 1001, {"protocol_version": 1001, "little_endian": True, "type_sizes": {}})
    return b"".join(pickle.dumps(part, 2) for part in start) + data + pickle.dumps([], 2)


def touching(folder: Path) -> str:
    """A shell command that leaves the canary."""
    return f"touch {folder / CANARY}"


def writing(folder: Path) -> str:
    """A Python program that does."""
    return f"open({str(folder / CANARY)!r}, 'w').close(); __import__('os').environ['{CANARY}'] = '1'"


class Calls:
    """Pickles as a call of anything."""

    def __init__(self, function: object, *arguments: object) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return self.function, self.arguments


class Model(torch.nn.Module):
    """A whole module, pickled by class."""


def saved(content: object, *, new: bool = True) -> bytes:
    """torch.save to memory."""
    out = io.BytesIO()
    torch.save(content, out, _use_new_zipfile_serialization=new)
    return out.getvalue()


def in_state_dict(folder: Path) -> bytes:
    state = OrderedDict(a=torch.ones(2), b=Calls(__import__("os").system, touching(folder)))
    return saved({"state_dict": state})


def rebuilt(function: str, *arguments: bytes) -> bytes:
    """A pickle that calls one of torch's own rebuild functions with these arguments, as 'a'."""
    return b"\x80\x02}X\x01\0\0\0a" + f"ctorch._utils\n{function}\n".encode() + b"(" + b"".join(arguments) + b"tRs."


def number(value: int) -> bytes:
    raw = value.to_bytes(8, "little")
    return b"\x8a\x08" + raw


def meta(_: Path) -> bytes:
    """A tensor of 2**60 numbers that has no memory at all."""
    arguments = (b"ctorch\nfloat32\n", number(2**60) + b"\x85", number(1) + b"\x85", b"\x89")
    return zipped(rebuilt("_rebuild_meta_tensor_no_storage", *arguments))


def other_storage(_: Path) -> bytes:
    """A tensor that reaches far behind its storage."""
    content = saved({"a": torch.ones(4)})
    return content.replace(b"K\x04\x85", b"K\xff\x85")


def strided(_: Path) -> bytes:
    return saved({"a": torch.ones(1).expand(2**33)})


def sparse(_: Path) -> bytes:
    return saved(
        {
            "a": torch.sparse_coo_tensor(
                torch.zeros(1, 1, dtype=torch.long), torch.ones(1), (2**40,), check_invariants=True
            )
        }
    )


def quantised(_: Path) -> bytes:
    return saved({"a": torch.ones(2, dtype=torch.complex64)})


def script(folder: Path) -> bytes:
    out = zipped(b"\x80\x02}.", storages={"constants.pkl": b"\x80\x02).", "code/__torch__.py": b"op_version_set = 1\n"})
    assert folder.is_dir()
    return out


def bare(make: Callable[[Path], bytes], name: str = "model.pth") -> Callable[[Path], Path]:
    """A builder that writes these bytes under this name."""

    def build(folder: Path) -> Path:
        path = folder / name
        path.write_bytes(make(folder))
        return path

    return build


def cases() -> list[Case]:
    calls: dict[str, Callable[[Path], bytes]] = {
        "os.system in text": lambda f: text("os", "system", touching(f)),
        "os.system, protocol 2": lambda f: binary("posix", "system", touching(f)),
        "os.system, protocol 4": lambda f: stack_global("posix", "system", touching(f)),
        "eval in torch's zip": lambda f: zipped(binary("builtins", "eval", writing(f).split(";")[0])),
        "exec in torch's zip": lambda f: zipped(binary("builtins", "exec", writing(f))),
        "exec in torch's old format": lambda f: legacy(binary("builtins", "exec", writing(f))),
        "subprocess": lambda f: zipped(binary("subprocess", "getoutput", touching(f))),
        "importlib": lambda f: zipped(binary("importlib", "import_module", "antigravity")),
        "runpy": lambda f: zipped(binary("runpy", "run_path", str(f / "evil.py"))),
        "a pickle in a pickle": lambda f: zipped(binary("pickle", "loads", "cos\nsystem\n(Vtouch\ntR.")),
        "torch.load as a gadget": lambda f: zipped(binary("torch", "load", str(f / "other.pth"))),
        "torch.hub as a gadget": lambda f: zipped(binary("torch.hub", "load", "evil/evil")),
        "setattr as a gadget": lambda f: zipped(binary("builtins", "setattr", "x")),
        "code in a state dict": in_state_dict,
        "os.putenv": lambda f: zipped(binary("os", "putenv", CANARY)),
        "a whole module": lambda f: saved(Model()),
    }
    harms: dict[str, tuple[Callable[[Path], bytes], str]] = {
        "bytearray of 8 TB": (
            lambda f: zipped(b"\x80\x02cbuiltins\nbytearray\n(" + number(2**43) + b"tR."),
            "needs more|made its reader stop",
        ),
        "stride 0: 32 GB in 1 KB": (strided, "describes 34,359,738,368 bytes"),
        "sparse tensor of 2**40": (sparse, "not a plain array|cannot be read"),
        "meta tensor of 2**60": (meta, "not a plain array|cannot be read"),
        "complex numbers": (quantised, "not a plain array"),
        "reaches behind its storage": (other_storage, "cannot be read as weights"),
        "TorchScript": (script, "TorchScript|cannot be read as weights"),
        "20 million operations in 40 KB": (
            lambda f: zipped(b"\x80\x02N" + b"q\0" * 20_000_000 + b".", zipfile.ZIP_DEFLATED),
            "takes far longer",
        ),
        "lists nested 200,000 deep": (
            lambda f: zipped(b"\x80\x02" + b"]" * 200_000 + b"a" * 199_999 + b"."),
            "no weights",
        ),
        "nothing but a number": (lambda f: zipped(b"\x80\x02K\x01."), "no weights we can find"),
        "an empty table": (lambda f: zipped(b"\x80\x02}."), "an empty table"),
        "a cut-off file": (lambda f: saved({"a": torch.ones(64)})[:700], "cannot be read as weights"),
        "NaN": (lambda f: saved({"a": torch.tensor([1.0, float("nan")])}), "'a' holds NaN"),
    }
    hidden = {
        "model.npz": "eval in torch's zip",
        "model.safetensors": "os.system, protocol 2",
        "config.json": "os.system, protocol 4",
    }
    return [
        *(Case("pickle", name, "read", bare(make), REFUSED) for name, make in calls.items()),
        *(Case("pickle", f"{name} as {file}", "read", bare(calls[name], file), REFUSED) for file, name in hidden.items()),
        *(Case("pickle", name, "pickled", bare(make), NOT_WEIGHTS) for name, make in calls.items()),
        *(Case("pickle", name, "pickled", bare(make), reason) for name, (make, reason) in harms.items()),
    ]  # fmt: skip


CASES = cases()
