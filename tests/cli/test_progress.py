"""Does a long command say how far it is, in words that fit fast and slow work, and nothing where nobody looks?"""

from __future__ import annotations

import io

import pytest

from vitrail.cli import progress
from vitrail.cli.progress import Progress, told


@pytest.mark.parametrize(
    ("done", "total", "seconds", "first", "line"),
    [
        (0, 10, 3.0, 0, "0/10 models"),
        (3_000, 12_000, 2.0, 0, "3,000/12,000 models  1,500.0/s  0:00:06 left"),
        (3, 10, 180.0, 0, "3/10 models  60 s each  0:07:00 left"),
        (900, 1_000, 10.0, 800, "900/1,000 models  10.0/s  0:00:10 left"),  # a command that goes on counts its own
    ],
)
def test_pace_and_time_left(done: int, total: int, seconds: float, first: int, line: str) -> None:
    assert told("models", done, total, seconds, first) == line


def test_a_pipe_gets_a_line_every_few_seconds_and_none_of_short_work(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    out = io.StringIO()
    shown = Progress("pictures", out)
    for second in range(12):
        now[0] = float(second)
        shown(second * 10, 1_000)
    assert out.getvalue().splitlines() == [
        "50/1,000 pictures  10.0/s  0:01:35 left",
        "100/1,000 pictures  10.0/s  0:01:30 left",
    ]
    Progress("pictures", None)(1, 2)
