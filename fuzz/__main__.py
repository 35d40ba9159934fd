"""python -m fuzz [READER ...] [--inputs N]: feed each reader N inputs, or go on where the last run stopped.

Inputs that reached new code are kept in the corpus folder, outside the repository, together with the count so far.
An input that crashes, hangs or takes too much memory is left there too, and the exit status is 1.
"""

# ruff: noqa: T201  (talking on stdout is what this program does)
from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fuzz.seeds import SEEDS

CACHE = Path(
    os.environ.get("VITRAIL_CACHE") or Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"), "vitrail")
)
MEMORY = Path("/dev/shm")
ROUND = 100_000  # inputs per process: an interrupted run loses no more than this
SLOW = ("bad-timeout-", "bad-slow-unit-")  # what libFuzzer leaves of an input when the clock is all that went wrong
LONGEST, SECONDS, MEGABYTES = 4096, 5, 1024  # an input's bytes; what it may take


def main() -> int:
    """Run the readers one after the other and print what each has seen."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("readers", nargs="*", metavar="READER", help=f"{', '.join(SEEDS)}; all when none is named")
    parser.add_argument("--inputs", type=int, default=1_000_000, help="per reader, earlier runs included")
    parser.add_argument("--corpus", type=Path, default=CACHE / "fuzz")
    options = parser.parse_args()
    return max(fuzz(reader, options.inputs, options.corpus / reader) for reader in options.readers or SEEDS)


def fuzz(reader: str, wanted: int, folder: Path) -> int:
    """0 when the reader has seen so many inputs and took all of them well."""
    inputs, log = folder / "inputs", folder / "seen.json"
    inputs.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(SEEDS[reader]()):
        (inputs / f"seed-{number:02}").write_bytes(seed)
    seen = json.loads(log.read_text()) if log.exists() else {"inputs": 0, "seconds": 0.0}
    while seen["inputs"] < wanted:
        began = time.monotonic()
        runs = min(ROUND, wanted - seen["inputs"])
        flags = [str(inputs), f"-runs={runs}", f"-seed={seen['inputs'] + 1}", f"-artifact_prefix={folder}/bad-"]
        status, text = under_atheris(reader, flags)
        if status and not only_stopped(reader, folder):
            print(text[text.find("=== Uncaught") :][-4000:])
            print(f"{reader}: failed after {seen['inputs']:,} inputs; the input is in {folder}")
            return 1
        if not status:
            seen = {"inputs": seen["inputs"] + executed(text), "seconds": seen["seconds"] + time.monotonic() - began}
            log.write_text(json.dumps(seen))
            print(f"{reader}: {seen['inputs']:,} inputs, {sum(1 for _ in inputs.iterdir()):,} kept", flush=True)
    inputs_seen, seconds = f"{seen['inputs']:,} inputs", f"{seen['seconds']:.0f} s"
    print(f"{reader}: {inputs_seen} in {seconds}; no crash, no hang, nothing over {MEGABYTES} MB")
    return 0


def under_atheris(reader: str, flags: list[str]) -> tuple[int, str]:
    """The exit status of one process that feeds the reader, and what it said."""
    limits = [f"-max_len={LONGEST}", f"-timeout={SECONDS}", f"-rss_limit_mb={MEGABYTES}"]
    command = [sys.executable, "-m", "fuzz.target", reader, *flags, *limits, "-print_final_stats=1", "-verbosity=1"]
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None, prefix="vitrail-fuzz-") as scratch:
        log, environment = Path(scratch, "log"), os.environ | {"FUZZ_FOLDER": scratch}
        with log.open("w") as output:
            status = subprocess.run(command, stdout=output, stderr=output, env=environment, check=False).returncode
        return status, log.read_text(errors="replace")


def only_stopped(reader: str, folder: Path) -> bool:
    """Whether all that went wrong is the clock: a stopped process or a sleeping machine looks like a hang.

    Each input that took too long is tried again, alone; one that takes well is no finding.
    """
    bad = list(folder.glob("bad-*"))
    for file in bad:
        if not file.name.startswith(SLOW) or under_atheris(reader, [str(file)])[0]:
            return False
        file.unlink()
    return bool(bad)


def executed(text: str) -> int:
    """The number of inputs libFuzzer says it ran."""
    return int(text.rsplit("stat::number_of_executed_units:", 1)[1].split()[0])


sys.exit(main())
