"""Killed at any of its events, does a run go on to the bits it would have had? (RELIABILITY.md A1)"""

from __future__ import annotations

import os
import random
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from chaos.figures import report
from train.lab import counting, done, dying_at, in_child, warm_up
from train.tiny import RICH, fingerprint, run_tiny

from vitrail.train.run import train

pytestmark = pytest.mark.chaos
KINDS: dict[str, dict[str, Any]] = {"plain": {}, "mixup, EMA, accumulation": RICH}
WORKERS = (0, 2, 4)
KILLS = int(os.environ.get("VITRAIL_CHAOS_KILLS", "40"))  # for each kind and number of workers
SEED = os.environ.get("VITRAIL_CHAOS_SEED", "0")  # another one kills at other moments


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_killed_anywhere_ends_in_the_same_bits(kind: str, workers: int, pictures: Path, tmp_path: Path) -> None:
    warm_up(pictures, tmp_path / "warm")
    changes = {**KINDS[kind], "data.workers": workers}
    whole = partial(run_tiny, pictures, tmp_path / "whole", changes)
    assert in_child(partial(counting, whole, tmp_path / "events")) == 0
    expected, events = fingerprint(tmp_path / "whole"), int((tmp_path / "events").read_text())
    dice, diary = random.Random(f"{kind} {workers} {SEED}"), tmp_path / "diary"
    mismatches = kills = 0
    while kills < KILLS:
        out = tmp_path / f"killed {kills}"
        begin, resume = partial(run_tiny, pictures, out, changes), partial(train, resume=out, quiet=True)
        code = in_child(partial(dying_at, dice.randrange(1, events), begin, diary))
        kills += code == -9
        while out.exists() and code == -9 and dice.random() < 0.5 and kills < KILLS:  # and again while it goes on
            code = in_child(partial(dying_at, dice.randrange(1, events), resume, diary))
            kills += code == -9
        if code == -9:  # killed before its folder had a name, a run has lost nothing and is in nobody's way
            code = in_child(partial(done, resume if out.exists() else begin))
        assert code == 0, out
        mismatches += fingerprint(out) != expected
        assert leftovers(out) == []
    phases = Counter(diary.read_text().splitlines())
    report("killed at any event", kind=kind, workers=workers, kills=kills, mismatches=mismatches, phases=dict(phases))
    assert mismatches == 0
    assert len(phases) >= 5 or KILLS < 30


def leftovers(out: Path) -> list[str]:
    """Files a dead process may have left half-written, and that a finished run must not have."""
    return [str(path) for path in out.rglob("*") if path.name.startswith(".") and path.name != ".lock"]
