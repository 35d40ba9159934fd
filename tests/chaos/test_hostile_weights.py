"""No weight file runs code, takes the machine, hangs, or goes in by halves: over a hundred that try."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hostile import CANARY, Case, every_case
from hostile.measure import DOORS

from vitrail.errors import CheckpointError

CASES = every_case()
MEASURE = Path(__file__).with_name("hostile") / "measure.py"
MEMORY, SECONDS = 256 * 2**20, 2.0
AT_LEAST = {"pickle": 15, "npz": 15, "safetensors": 20, "config": 15, "archive": 15, "wrong": 15}


def label(case: Case) -> str:
    return f"{case.group}: {case.name} ({case.door})"


def test_there_are_enough_of_every_kind():
    count = Counter(case.group for case in CASES)
    assert count.total() >= 100
    assert all(count[group] >= least for group, least in AT_LEAST.items()), count


# A pickle that the user asked for costs a process each; those are opened with all the others under `-m chaos`.
@pytest.mark.parametrize("case", [case for case in CASES if case.door != "pickled"], ids=label)
def test_a_hostile_file_is_refused_by_name_and_reason(case, tmp_path):
    target = case.build(tmp_path)
    with pytest.raises(CheckpointError, match=case.reason) as caught:
        DOORS[case.door](target)
    assert_message(case, target.name, str(caught.value))
    assert not (tmp_path / CANARY).exists()
    assert CANARY not in os.environ


def assert_message(case: Case, file: str, message: str) -> None:
    """File, tensor and reason are named, in printable lines: three, or a diff of the names."""
    assert re.search(case.reason, message), message
    assert case.door == "load" or file in message, message
    assert not case.tensor or f"'{case.tensor}'" in message, message
    assert len(message.splitlines()) <= 3 or "does not add up" in message
    assert all(line.isprintable() for line in message.splitlines())


@pytest.mark.chaos
def test_the_whole_table_measured_in_processes_of_their_own(tmp_path):
    for number, case in enumerate(CASES):
        folder = tmp_path / f"{number:03}"
        folder.mkdir()
        (folder / "target").write_text(str(case.build(folder)))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    run = subprocess.run(
        [sys.executable, MEASURE, tmp_path], env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    rows = [json.loads(line) for line in run.stdout.splitlines()]
    write_table(rows)
    assert len(rows) == len(CASES)
    answers = [(case, faults(case, row)) for case, row in zip(CASES, rows, strict=True)]
    bad = [(label(case), wrong) for case, wrong in answers if wrong]
    assert not bad, "\n".join(f"{name}: {wrong}" for name, wrong in bad)


def faults(case: Case, row: dict[str, object]) -> str:
    """What is wrong with how a case was met."""
    if "crash" in row:
        return f"the process ended with {row['crash']}"
    checks = {
        "code ran": not row["ran"],
        f"{row['kind']}: {row['message']}": row["exit"] == 4,
        f"took {row['seconds']:.1f} s": row["seconds"] <= SECONDS,
        f"took {row['peak']:,} bytes": row["peak"] <= row["size"] + MEMORY,
    }
    failed = [what for what, passed in checks.items() if not passed]
    if not failed:
        try:
            assert_message(case, str(row["file"]), str(row["message"]))
        except AssertionError:
            failed.append(f"says {row['message']!r}")
    return "; ".join(failed)


def write_table(rows: list[dict[str, object]]) -> None:
    """The table for the report, where HOSTILE_TABLE says so."""
    target = os.environ.get("HOSTILE_TABLE")
    if not target:
        return
    lines = ["| kind | file | door | size | peak memory | time | answer |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        answer = str(row.get("message", f"CRASH {row.get('crash')}")).splitlines()[0].replace("|", "\\|")
        answer = re.sub(r"\S*/(?=[^/ ]+: |[^/ ]+$)", "", answer)[:110]
        lines.append(
            f"| {row.get('group')} | {row['name']} | {row.get('door')} | {row.get('size', 0):,} | "
            f"{int(row.get('peak', 0)) / 2**20:.0f} MB | {row.get('seconds', 0):.2f} s | {answer} |"
        )
    Path(target).write_text("\n".join(lines) + "\n")
