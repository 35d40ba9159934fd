"""The process in which a pickle is opened: `python -I pickled_child.py PICKLE FOLDER`.

It starts with the standard library alone, gives up the network and most of its resources, imports torch, gives up
everything else a process can do to others, and only then looks at the file. What it finds it leaves in FOLDER as
`weights.safetensors`, or as `refused.txt`, a sentence. It never runs what the pickle asks for: torch's restricted
unpickler builds tensors and plain containers only, and the rest is here because that unpickler has had holes before
(CVE-2025-32434, CVE-2026-24747).
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

SLACK = 192 * 2**20  # memory beyond twice the file
MIN_SECONDS, BYTES_PER_SECOND = 1.5, 50_000_000  # of processor time for the reading itself
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
PR_SET_PDEATHSIG = 1

# Python raises these "audit events" before it acts; sys.addaudithook may forbid the act.
FORBIDDEN = (
    "socket.", "subprocess.", "pty.", "os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "os.startfile",
    "os.kill", "os.putenv", "os.chmod", "os.chown", "os.link", "os.symlink", "os.truncate", "ctypes.dlopen",
    "pickle.find_class", "urllib.", "shutil.", "tempfile.",
)  # fmt: skip
INSIDE_ONLY = ("os.remove", "os.rename", "os.mkdir", "os.rmdir")

# What training scripts keep beside the weights. It is skipped: each name stands for an empty object, never itself.
HARMLESS = (
    "argparse.Namespace", "pathlib.PosixPath", "pathlib.WindowsPath", "pathlib.PurePosixPath",
    "numpy.dtype", "numpy.ndarray", "numpy.core.multiarray.scalar", "numpy.core.multiarray._reconstruct",
    "numpy._core.multiarray.scalar", "numpy._core.multiarray._reconstruct",
)  # fmt: skip

# Where training scripts keep the weights inside what they save; the first that is there is meant.
WRAPPERS = ("state_dict_ema", "model_ema", "ema", "state_dict", "model_state_dict", "model", "teacher", "params", "net")
PREFIXES = ("module.", "_orig_mod.")  # DataParallel, torch.compile


class Skipped:
    """Stands in for an object that holds no weights."""

    def __new__(cls, *_: object) -> Skipped:
        """Whatever it is made from, it is empty."""
        return super().__new__(cls)

    def __setstate__(self, state: object) -> None:
        """Forget it."""


class Refused(Exception):
    """The file is not what we open; the message says why."""


def main() -> None:
    """Open the pickle argv[1] and leave what it holds in the folder argv[2]."""
    path, folder = Path(sys.argv[1]), Path(sys.argv[2])
    give_up_network_and_resources(path.stat().st_size)
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    import torch

    from vitrail.checkpoint.container import write_safetensors

    torch.set_num_threads(1)
    give_up_the_rest(folder)
    limit_memory_and_time(path.stat().st_size)
    try:
        tensors, notes = weights_of(open_restricted(path), path.stat().st_size)
        write_safetensors(folder / "weights.safetensors", tensors, notes)
    except (Refused, MemoryError, RecursionError, PermissionError) as refusal:
        reason = str(refusal) if isinstance(refusal, Refused) else f"needs more than it may have ({refusal!r})."
        (folder / "refused.txt").write_text(reason, encoding="utf-8")


def give_up_network_and_resources(size: int) -> None:
    """No network, no core dump, few files, and none larger than the weights can be; die with the parent."""
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if libc.unshare(CLONE_NEWNET):  # only root may; others may inside a user namespace of their own
            libc.unshare(CLONE_NEWUSER | CLONE_NEWNET)
    largest = 2 * size + SLACK
    for kind, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, largest),
        (resource.RLIMIT_NOFILE, 256),
        (resource.RLIMIT_CPU, 60 + 2 * size // BYTES_PER_SECOND),
    ):
        with suppress(ValueError, OSError):  # a lower hard limit stands already
            resource.setrlimit(kind, (value, value))


def give_up_the_rest(folder: Path) -> None:
    """From here on: no socket, no process, no library, no real unpickling, no file changed outside the folder."""
    inside = str(folder) + os.sep
    writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

    def refuse(event: str, arguments: tuple[Any, ...]) -> None:
        changes = event in INSIDE_ONLY or (event == "open" and bool(arguments[2] & writing))
        if event.startswith(FORBIDDEN) or (changes and not os.fsdecode(arguments[0]).startswith(inside)):
            raise PermissionError(f"{event} is forbidden here")

    sys.addaudithook(refuse)


def limit_memory_and_time(size: int) -> None:
    """Twice the file and some more memory; processor time by the size of the file."""
    with suppress(OSError, ValueError):
        now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        limit = now + 2 * size + SLACK
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    signal.setitimer(signal.ITIMER_PROF, MIN_SECONDS + size / BYTES_PER_SECOND)  # SIGPROF ends the process


def open_restricted(path: Path) -> object:
    """Whatever tensors, text and numbers the pickle holds, in its own nesting."""
    import torch

    with path.open("rb") as file:
        zipped = file.read(4) == b"PK\3\4"
    torch.serialization.add_safe_globals([(Skipped, name) for name in HARMLESS])
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=zipped)
    except (MemoryError, RecursionError, PermissionError):
        raise
    except Exception as error:  # torch raises what it likes; in here the text is all that matters
        raise Refused(explain(str(error))) from error


def explain(text: str) -> str:
    """torch's complaint, in one sentence of ours where it is a common one."""
    for marker, sentence in (
        ("GLOBAL ", "asks for {}, which is not weights; nothing was run."),
        ("TorchScript", "is a TorchScript program, not weights."),
    ):
        if marker in text:
            word = text.split(marker, 1)[1].split(maxsplit=1)[0]
            return sentence.format(word)
    # The rest of the message advises to switch the restriction off.
    said = text.rpartition("WeightsUnpickler error: ")[2].strip() or "it is damaged"
    return f"cannot be read as weights: {said.splitlines()[0]}"


def weights_of(content: object, size: int) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """The named tensors inside what a training script saved, and notes on where they were and what was left out."""
    import torch

    unwrapped: list[str] = []
    skipped: list[str] = []
    while isinstance(content, dict) and not any(isinstance(value, torch.Tensor) for value in content.values()):
        name = next((name for name in WRAPPERS if isinstance(content.get(name), dict)), None)
        if name is None or len(unwrapped) == 4:
            break
        unwrapped.append(name)
        skipped += [str(other) for other in content if other != name]
        content = content[name]
    if not isinstance(content, dict) or not any(isinstance(value, torch.Tensor) for value in content.values()):
        raise Refused(f"holds no weights we can find; at its top it is {outline(content)}.")
    tensors = {str(name): value for name, value in content.items() if isinstance(value, torch.Tensor)}
    skipped += [str(name) for name, value in content.items() if not isinstance(value, torch.Tensor)]
    check_plain(tensors, size)
    for prefix in (*PREFIXES, *PREFIXES):
        if all(name.startswith(prefix) for name in tensors):
            tensors = {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}
    notes = {"unwrapped": " > ".join(unwrapped), "skipped": ", ".join(skipped)[:1000]}
    return tensors, {key: text for key, text in notes.items() if text}


def check_plain(tensors: dict[str, torch.Tensor], size: int) -> None:
    """Tensors are ordinary numbers in memory, and together no larger than the file allows."""
    import torch

    for name, tensor in tensors.items():
        plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.device.type == "cpu"
        if not plain or tensor.layout != torch.strided or tensor.is_quantized or tensor.is_complex():
            raise Refused(f"tensor '{name}' is not a plain array of numbers.")
    total = sum(tensor.nbytes for tensor in tensors.values())
    if total > 2 * size:  # tied weights are stored once and written twice; more is a trick with strides
        raise Refused(f"describes {total:,} bytes of weights in a file of {size:,}.")


def outline(content: object) -> str:
    """What something is, in a few words."""
    if not isinstance(content, dict):
        return f"a {type(content).__name__}"
    names = ", ".join(repr(name)[:40] for name in list(content)[:8])
    return f"a table of {names}" if names else "an empty table"


if __name__ == "__main__":
    main()
