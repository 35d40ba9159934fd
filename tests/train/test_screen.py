"""Does a person see how far a run is: on a terminal as a table, in a file as lines?"""

from __future__ import annotations

import io
import time
from pathlib import Path
from typing import Any

from train.tiny import run_tiny

from vitrail.train import screen
from vitrail.train.screen import Lines, Table, duration, screen_for, verdict

NOW = {
    "epoch": 2, "epochs": 5, "step": 17, "steps": 50, "loss": 0.51234, "gradient": 1.0, "lr": 3e-4,
    "images_per_second": 123.4, "seconds_left": 75.0, "waiting": 0.4,
}  # fmt: skip
ROW = {
    "epoch": 1, "step": 10, "train_loss": 1.25, "val_loss": 1.0, "val_top1": 0.625, "val_top5": 1.0, "lr": 1e-3,
    "seconds": 4.0, "images_per_second": 120.0,
}  # fmt: skip


def test_the_present_step_is_one_line_with_everything_in_it() -> None:
    line = screen.summary(NOW)
    for part in (
        "epoch 2/5",
        "step 17/50",
        "loss 0.5123",
        "lr 0.0003",
        "123 images/s",
        "1:15 left",
        "reading pictures",
    ):
        assert part in line
    assert verdict(0.05).startswith("limited by computing")
    assert duration(3723) == "1:02:03"


def test_the_table_has_a_row_for_every_epoch_and_marks_the_best() -> None:
    from rich.console import Console

    table = Table()
    table.now, table.doing = dict(NOW), "training"
    table.epoch({**ROW, "epoch": 1}, improved=True)
    table.epoch({**ROW, "epoch": 2, "val_top1": 0.7}, improved=True)
    table.epoch({**ROW, "epoch": 3, "val_top1": 0.6}, improved=False)
    out = Console(file=io.StringIO(), width=120, record=True)
    out.print(table.render())
    lines = out.export_text().splitlines()
    assert any("val top1" in line for line in lines)
    assert [("best" in line) for line in lines if line.strip().startswith(("1 ", "2 ", "3 "))] == [False, True, False]
    assert "70.00%" in "".join(lines)


def test_lines_come_now_and_then_and_one_for_every_epoch(monkeypatch: Any) -> None:
    out = io.StringIO()
    lines = Lines(out)
    lines.now, lines.doing = dict(NOW), "training"
    lines.show()
    assert out.getvalue() == "", "not at once"
    lines.shown = time.monotonic() - 6
    lines.show()
    lines.epoch(ROW, improved=True)
    lines.phase("evaluating")
    lines.shown = time.monotonic() - 6
    lines.counted(30, 60)
    said = out.getvalue().splitlines()
    assert len(said) == 3
    assert "val_top1 62.50%" in said[1]
    assert said[1].endswith("best so far")
    assert said[2] == "evaluating: 30/60 pictures"


def test_what_is_counted_is_what_happens(pictures: Path, tmp_path: Path, monkeypatch: Any) -> None:
    rows: list[dict[str, Any]] = []
    monkeypatch.setattr(screen.Screen, "show", lambda self: rows.append(dict(self.now)))
    run_tiny(pictures, tmp_path / "run", {"train.epochs": 2})
    steps = [row for row in rows if row]
    assert max(row["step"] for row in steps) == steps[0]["steps"] == 8
    assert steps[-1]["seconds_left"] < 60
    with screen_for(quiet=True) as nothing:
        nothing.tell("unheard")
