"""A library in a process of its own, as a user would run it: it is given a line, works, and answers with a line."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path


class Child:
    """`python -m MODULE ARGUMENTS...`, started and waiting; everybody gets as many threads."""

    def __init__(self, module: str, *arguments: object, threads: int, cache: Path) -> None:
        environment = os.environ | {"OMP_NUM_THREADS": str(threads), "VITRAIL_CACHE": str(cache)}
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 -- lives as long as the process
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env=environment,
        )

    def ask(self, line: object) -> str:
        """What it answers."""
        assert self.process.stdin
        assert self.process.stdout
        print(line, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            self.errors.seek(0)
            raise RuntimeError(f"{self.process.args} ended:\n{self.errors.read()}")
        return answer.rstrip("\n")

    def seconds(self, line: object) -> float:
        """How long it takes to answer."""
        start = time.perf_counter()
        self.ask(line)
        return time.perf_counter() - start

    def end(self) -> float:
        """Let it end; the most memory it held, in MB."""
        assert self.process.stdin
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        self.process.stdin.close()
        self.process.wait()
        self.errors.close()
        return int(status.partition("VmHWM:")[2].split()[0]) / 1024


# A small process in between: whoever is started inherits the peak of whoever started it, and a bench holds models.
LAUNCH = """
import os, subprocess, sys, time
began = time.perf_counter()
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
output = process.stdout.read()
_, status, usage = os.wait4(process.pid, 0)
print(time.perf_counter() - began, usage.ru_maxrss / 1024)
sys.exit(status != 0 or not output)
"""


def once(command: list[str], *, threads: int, cache: Path) -> tuple[float, float]:
    """A command from start to end: seconds, and peak memory in MB."""
    environment = os.environ | {"VITRAIL_CACHE": str(cache), "OMP_NUM_THREADS": str(threads)}
    launch = [sys.executable, "-S", "-c", LAUNCH, *command]
    ran = subprocess.run(launch, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    seconds, memory = map(float, ran.stdout.split())
    return seconds, memory
