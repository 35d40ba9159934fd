"""Asked to stop, at any moment: is the run committed and gone at once, and does it go on to the same bits? (A5)"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from chaos.figures import report
from train.lab import at_event, counting, done, in_child, phase_of, warm_up
from train.tiny import RICH, fingerprint, run_tiny

from vitrail.runs import directory
from vitrail.train.run import train

pytestmark = pytest.mark.chaos
TRIALS = int(os.environ.get("VITRAIL_CHAOS_SIGNALS", "60"))  # for each signal


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_at_any_event_leads_to_a_committed_stop(
    number: signal.Signals, pictures: Path, tmp_path: Path
) -> None:
    warm_up(pictures, tmp_path / "warm")
    whole = partial(run_tiny, pictures, tmp_path / "whole", RICH)
    assert in_child(partial(counting, whole, tmp_path / "events")) == 0
    expected, events = fingerprint(tmp_path / "whole"), int((tmp_path / "events").read_text())
    dice, diary = random.Random(int(number)), tmp_path / "diary"
    codes: Counter[int] = Counter()
    waits: list[float] = []

    def signalled(event: int, out: Path) -> int:
        def happen(frame: object) -> None:
            with diary.open("a") as file:
                file.write(f"{time.monotonic()}\t{phase_of(frame)}\n")
            os.kill(os.getpid(), number)

        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background has it ignored
        return at_event(event, partial(run_tiny, pictures, out, RICH), happen).exit_code

    for trial in range(TRIALS):
        out = tmp_path / f"run {trial}"
        code = in_child(partial(signalled, dice.randrange(1, events), out))
        ended = time.monotonic()
        codes[code] += 1
        sent, phase = diary.read_text().splitlines()[-1].split("\t")
        if phase == "before the run":  # nothing to commit yet: the signal does what it always does
            assert code in (-number, 99, 128 + number)
        elif code != 0:  # 0: it came when the run was over
            assert code == 128 + number, phase
            waits.append(ended - float(sent))
            assert directory.read_record(directory.Run(out))["status"] == "preempted"
        resume = partial(train, resume=out, quiet=True)
        assert in_child(partial(done, resume if out.exists() else partial(run_tiny, pictures, out, RICH))) == 0
        assert fingerprint(out) == expected, (trial, phase)
    phases = Counter(line.split("\t")[1] for line in diary.read_text().splitlines())
    report(
        f"{number.name} at any event",
        trials=TRIALS,
        codes={str(code): count for code, count in codes.items()},
        phases=dict(phases),
        seconds_to_exit={"median": sorted(waits)[len(waits) // 2], "max": max(waits)},
        mismatches=0,
    )
    assert max(waits) < 5


def test_a_second_signal_ends_the_process_at_once_and_what_is_on_disk_is_whole(pictures: Path, tmp_path: Path) -> None:
    warm_up(pictures, tmp_path / "warm")
    whole = partial(run_tiny, pictures, tmp_path / "whole", RICH)
    assert in_child(partial(counting, whole, tmp_path / "events")) == 0
    late = int((tmp_path / "events").read_text()) * 9 // 10  # when the run has long been listening

    def signalled_twice(out: Path) -> int:
        def happen(frame: object) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGINT)

        return at_event(late, partial(run_tiny, pictures, out, RICH), happen).exit_code

    out = tmp_path / "run"
    assert in_child(partial(signalled_twice, out)) == 128 + signal.SIGINT
    assert in_child(partial(done, partial(train, resume=out, quiet=True))) == 0
    assert fingerprint(out) == fingerprint(tmp_path / "whole")
