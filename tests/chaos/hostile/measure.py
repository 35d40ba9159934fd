"""python measure.py FOLDER: opens every hostile file in a process of its own and prints what happened, one JSON a line.

One process imports torch and vitrail once and forks for each case, so that a case costs milliseconds and its memory
is counted from an idle process that has torch.
"""

# ruff: noqa: T201  (it talks on stdout)
from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch

from hostile import CANARY, Case, every_case
from vitrail.checkpoint import container, pickled
from vitrail.checkpoint.load import load
from vitrail.errors import VitrailError

DOORS: dict[str, Callable[[Path], object]] = {
    "read": container.read,
    "pickled": pickled.read,
    "json": container.read_json,
    "load": load,
}


def main() -> None:
    """Open every case that was built below the folder given."""
    torch.set_num_threads(1)
    idle = idle_child()
    start = time.perf_counter()
    for number, case in enumerate(every_case()):
        folder = Path(sys.argv[1], f"{number:03}")
        print(json.dumps(in_own_process(case, folder, idle)), flush=True)
    print(f"{time.perf_counter() - start:.1f} s", file=sys.stderr)


def in_own_process(case: Case, folder: Path, idle: tuple[float, int]) -> dict[str, object]:
    """What one case did, measured in a fork of this process."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        with os.fdopen(writer, "w") as out:
            json.dump(opened(case, folder, idle), out)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        said = answer.read()
    _, status = os.waitpid(child, 0)
    return json.loads(said) if said and status == 0 else {"name": case.name, "crash": status}


def opened(case: Case, folder: Path, idle: tuple[float, int]) -> dict[str, object]:
    """Open the file of a case; what was said, how long it took, how much memory, and whether anything ran."""
    target = Path((folder / "target").read_text())
    before = resident()
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    start = time.perf_counter()
    error: BaseException | None = None
    try:
        DOORS[case.door](target)
    except BaseException as caught:  # a crash is a result here
        error = caught
    seconds = time.perf_counter() - start
    peak = resident("VmHWM") - before
    if case.door == "pickled":
        # Its child imports torch before it looks at the file. How long that takes depends on what else this machine
        # does, so processor time is compared, with that of a child that reads next to nothing.
        child = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = max(0.0, child.ru_utime + child.ru_stime - idle[0])
        peak = max(peak, child.ru_maxrss * 1024 - idle[1])
    return {
        "group": case.group, "name": case.name, "door": case.door, "seconds": seconds, "peak": peak,
        "size": sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()),
        "ran": (folder / CANARY).exists() or CANARY in os.environ,
        "kind": type(error).__name__, "exit": error.exit_code if isinstance(error, VitrailError) else None,
        "message": str(error), "file": target.name,
    }  # fmt: skip


def resident(field: str = "VmRSS") -> int:
    """Bytes of memory this process has, or had at its peak."""
    status = Path("/proc/self/status").read_text()
    return int(status.split(field + ":")[1].split()[0]) * 1024


def idle_child() -> tuple[float, int]:
    """Processor seconds and peak memory of the pickle reader's child when there is next to nothing to read."""
    program = (
        "import resource, tempfile, torch\n"
        "from pathlib import Path\n"
        "from vitrail.checkpoint import pickled\n"
        "file = Path(tempfile.mkdtemp(), 'model.pth')\n"
        "torch.save({'a': torch.ones(1)}, file)\n"
        "for _ in range(3): pickled.read(file)\n"
        "child = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "print((child.ru_utime + child.ru_stime) / 3, child.ru_maxrss * 1024)"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    seconds, memory = run.stdout.split()
    return float(seconds), int(memory)


if __name__ == "__main__":
    main()
