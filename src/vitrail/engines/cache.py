"""Compiled graphs and choices, kept between processes so that a known model starts without torch.

    <cache>/engines/
        weights/<files>.json     the stat of a checkpoint's files -> the hash of the model in them
        choices/<key>.json       model, what was asked, this machine, these versions -> what was chosen
        graphs/<key>/            what an engine saved, and what it answers to one fixed picture

A file or folder takes its name only when it is complete. Everything here can be deleted at any time.
"""

from __future__ import annotations

import hashlib
import os
import platform
import secrets
import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import TypeVar

import msgspec

Struct = TypeVar("Struct", bound=msgspec.Struct)
RUNTIMES = ("openvino", "onnxruntime", "torch")
MOST_BYTES = 8 * 2**30  # of graphs; the longest unused go first


class Known(msgspec.Struct, frozen=True):
    """The hash of a model whose files have not changed."""

    weights: str


class Cache:
    """A folder of what was found out before. Without one (None) nothing is remembered."""

    def __init__(self, root: Path | None) -> None:
        self.root = root

    def read(self, kind: str, key: str, type: type[Struct]) -> Struct | None:
        """A small record, or None if there is none that can be read."""
        if self.root is None:
            return None
        with suppress(OSError, msgspec.DecodeError):
            return msgspec.json.decode((self.root / kind / f"{key}.json").read_bytes(), type=type)
        return None

    def write(self, kind: str, key: str, record: msgspec.Struct) -> None:
        """Keep a small record."""
        if self.root is None:
            return
        folder = self._folder(kind)
        temporary = folder / f".{key}.{secrets.token_hex(4)}"
        temporary.write_bytes(msgspec.json.encode(record))
        temporary.replace(folder / f"{key}.json")

    def graph(self, key: str) -> Path | None:
        """The folder of a saved graph, marked as used."""
        folder = self.root / "graphs" / key if self.root else None
        if folder is None or not folder.is_dir():
            return None
        with suppress(OSError):
            os.utime(folder)
        return folder

    def save(self, key: str, write: Callable[[Path], None]) -> None:
        """Keep a graph: `write` puts files into an empty folder."""
        if self.root is None:
            return
        graphs = self._folder("graphs")
        temporary = graphs / f".{key}.{secrets.token_hex(4)}"
        temporary.mkdir(mode=0o700)
        try:
            write(temporary)
            self.forget(key)
            temporary.rename(graphs / key)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        prune(graphs, MOST_BYTES)

    def forget(self, key: str) -> None:
        """Drop a graph that is not to be used again."""
        if self.root is not None:
            shutil.rmtree(self.root / "graphs" / key, ignore_errors=True)

    def _folder(self, kind: str) -> Path:
        assert self.root
        folder = self.root / kind
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # a graph is code to the runtime that loads it
        return folder


def default_cache() -> Cache:
    """In VITRAIL_CACHE, or in a folder of ours in the user's cache; none where that folder is not the user's own."""
    own = os.environ.get("VITRAIL_CACHE")
    home = Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "vitrail")
    root = home / "engines"
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        state = root.stat()
    except OSError:
        return Cache(None)
    foreign = os.name == "posix" and (state.st_uid != os.geteuid() or state.st_mode & 0o022)
    return Cache(None if foreign or not os.access(root, os.W_OK) else root)


def prune(graphs: Path, most: int) -> None:
    """Remove the graphs unused for longest until the rest fits; the newest always stays."""
    folders = sorted((path for path in graphs.iterdir() if path.is_dir()), key=lambda path: -path.stat().st_mtime)
    total = 0
    for index, folder in enumerate(folders):
        total += sum(file.stat().st_size for file in folder.iterdir())
        if index and total > most:
            shutil.rmtree(folder, ignore_errors=True)


def stat_of(files: Iterable[Path]) -> str:
    """A digest of where files are and when they last changed in any way; their bytes are not read."""
    digest = hashlib.sha256()
    for path in sorted(file.resolve() for file in files):
        state = path.stat()
        digest.update(repr((str(path), state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)).encode())
    return digest.hexdigest()[:32]


def key(*parts: str | msgspec.Struct | None) -> str:
    """A name for what was found out about these things, by this code, on this machine."""
    encoded = [msgspec.json.encode(part) for part in (*parts, here())]
    return hashlib.sha256(b"\0".join(encoded)).hexdigest()[:32]


@lru_cache
def here() -> str:
    """This code, these runtimes, this processor: a graph compiled for one of them is for no other."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    for runtime in RUNTIMES:
        digest.update(f"{runtime} {version(runtime)}".encode())
    digest.update(processor().encode())
    return digest.hexdigest()


def version(runtime: str) -> str:
    """An installed version, without importing what it is of."""
    try:
        return metadata.version(runtime)
    except metadata.PackageNotFoundError:
        return "none"


@lru_cache
def processor() -> str:
    """The processor's name and abilities."""
    with suppress(OSError):
        first = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
        return "\n".join(line for line in first.splitlines() if line.startswith(("model name", "flags", "Features")))
    return f"{platform.machine()} {platform.processor()}"


def has_bfloat16() -> bool:
    """Whether this processor multiplies in bfloat16."""
    words = processor().split()
    return any(word in words for word in ("avx512_bf16", "amx_bf16", "bf16"))
