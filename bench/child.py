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
        self.process.stdin.close()
        _, self.process.returncode, usage = os.wait4(self.process.pid, 0)
        self.errors.close()
        return usage.ru_maxrss / 1024
