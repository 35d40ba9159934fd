"""What a person sees of a run: a live table on a terminal, a plain line now and then anywhere else."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from vitrail.train.job import Job
from vitrail.train.state import TrainState
from vitrail.train.step import Taken
from vitrail.train.trackers import Tracker

if TYPE_CHECKING:
    from rich.console import RenderableType

EVERY = 5.0  # seconds between plain lines
TRACKED = ("loss", "gradient", "lr", "images_per_second", "waiting")
WINDOW = 60.0  # seconds that rates are over
COLUMNS = {"epoch": "d", "train_loss": ".4f", "val_loss": ".4f", "val_top1": ".2%", "val_top5": ".2%", "lr": ".2g"}


class Screen:
    """Shows nothing, and keeps count of what the others show."""

    def __init__(self) -> None:
        self.recent: deque[tuple[float, int]] = deque()  # when, pictures
        self.now: dict[str, Any] = {}
        self.rows: list[tuple[dict[str, Any], bool]] = []
        self.doing = "starting"
        self.trackers: list[Tracker] = []

    def step(self, job: Job, state: TrainState, taken: Taken, waiting: float) -> None:
        """After every step; `waiting` is the share of the training time spent waiting for pictures."""
        self.recent.append((time.monotonic(), taken.pictures))
        while self.recent[-1][0] - self.recent[0][0] > WINDOW:
            self.recent.popleft()
        self.doing = "training"
        self.now = {
            "epoch": state.progress.epochs + 1,
            "epochs": job.config.epochs,
            "step": state.progress.step,
            "steps": job.steps,
            "loss": taken.loss_sum / max(taken.pictures, 1),
            "gradient": taken.gradient,
            "lr": taken.rate,
            "images_per_second": self.rate,
            "seconds_left": self.seconds_left(job, state),
            "waiting": waiting,
        }
        for tracker in self.trackers:
            tracker.step(state.progress.step, {name: self.now[name] for name in TRACKED})
        self.show()

    def epoch(self, row: dict[str, Any], improved: bool) -> None:
        """After every epoch: its row, and whether it is the best so far."""
        self.rows.append((row, improved))
        self.recent.clear()
        for tracker in self.trackers:
            tracker.epoch(row["step"], {name: cell for name, cell in row.items() if name not in ("epoch", "step")})

    def phase(self, doing: str) -> None:
        """What happens between steps."""
        self.doing = doing

    def counted(self, done: int, total: int) -> None:
        """How far that is, in pictures."""
        self.doing = f"{self.doing.partition(':')[0]}: {done:,}/{total:,} pictures"
        self.show()

    def warn(self, text: str) -> None:
        """Something a person should know."""
        self.tell(f"warning: {text}")

    def tell(self, text: str) -> None:
        """A line that stays."""

    def show(self) -> None:
        """Bring what is seen up to date."""

    @property
    def rate(self) -> float:
        """Pictures per second lately."""
        if len(self.recent) < 2:
            return 0.0
        pictures = sum(count for _, count in list(self.recent)[1:])
        return pictures / max(self.recent[-1][0] - self.recent[0][0], 1e-9)

    def seconds_left(self, job: Job, state: TrainState) -> float:
        """Until the end: the steps that remain at the present rate, and the evaluations as long as the last one."""
        pictures = len(job.data.train) * (job.config.epochs - state.progress.epochs) - state.progress.seen
        rows = [row for row, _ in self.rows] or state.progress.history
        training = len(job.data.train) / rows[-1]["images_per_second"] if rows and rows[-1]["images_per_second"] else 0
        between = max(rows[-1]["seconds"] - training, 0) if rows else 0
        epochs_left = job.config.epochs - state.progress.epochs
        return pictures / self.rate + between * epochs_left if self.rate else 0.0


class Lines(Screen):
    """Plain lines, for files and pipes."""

    def __init__(self, out: TextIO = sys.stderr) -> None:
        super().__init__()
        self.out, self.shown = out, time.monotonic()

    def epoch(self, row: dict[str, Any], improved: bool) -> None:
        """One line per epoch."""
        super().epoch(row, improved)
        numbers = "  ".join(f"{name} {cell}" for name, cell in zip(COLUMNS, cells(row), strict=True) if cell)
        self.line(f"{numbers}  {row['images_per_second']:.0f} images/s{'  best so far' if improved else ''}")

    def tell(self, text: str) -> None:
        """A line of its own."""
        self.line(text)

    def show(self) -> None:
        """A line every few seconds."""
        if time.monotonic() - self.shown >= EVERY:
            self.line(summary(self.now) if self.doing == "training" else self.doing)

    def line(self, text: str) -> None:
        """Written at once."""
        self.out.write(text + "\n")
        self.out.flush()
        self.shown = time.monotonic()


class Table(Screen):
    """The epochs as a table that grows, and under it the present step."""

    def __init__(self) -> None:
        super().__init__()
        from rich.console import Console
        from rich.live import Live

        self.notes: list[str] = []
        self.live = Live(console=Console(stderr=True), refresh_per_second=4, get_renderable=self.render)

    def tell(self, text: str) -> None:
        """Above the table."""
        self.live.console.print(text, style="yellow" if text.startswith("warning") else None, markup=False)

    def render(self) -> RenderableType:
        """All there is to see."""
        from rich import box
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table as Grid
        from rich.text import Text

        table = Grid(box=box.SIMPLE_HEAD, pad_edge=False)
        for name in (*COLUMNS, "images/s", ""):
            table.add_column(name.replace("_", " "), justify="right")
        best = max((index for index, (_, improved) in enumerate(self.rows) if improved), default=-1)
        for index, (row, _) in list(enumerate(self.rows))[-12:]:
            table.add_row(*cells(row), f"{row['images_per_second']:.0f}", "best" if index == best else "")
        if not self.now:
            return Group(table, Text(f"{self.doing} ..."))
        bar = ProgressBar(total=self.now["steps"], completed=self.now["step"], width=60)
        return Group(table, bar, Text(summary(self.now)), Text("" if self.doing == "training" else f"{self.doing} ..."))


@contextmanager
def screen_for(quiet: bool = False) -> Iterator[Screen]:
    """The screen that fits where stderr goes."""
    if quiet:
        yield Screen()
    elif sys.stderr.isatty():
        table = Table()
        with table.live:
            yield table
    else:
        yield Lines()


def summary(now: dict[str, Any]) -> str:
    """The present step in one line."""
    parts = [
        f"epoch {now['epoch']}/{now['epochs']}",
        f"step {now['step']:,}/{now['steps']:,}",
        f"loss {now['loss']:.4f}",
        f"lr {now['lr']:.2g}",
        f"{now['images_per_second']:.0f} images/s",
        f"{duration(now['seconds_left'])} left" if now["seconds_left"] else "",
        verdict(now["waiting"]),
    ]
    return "  ".join(part for part in parts if part)


def verdict(waiting: float) -> str:
    """Which half of the machine is the limit."""
    if waiting > 0.2:
        return f"limited by reading pictures ({waiting:.0%} of the time waiting: more data.workers may help)"
    return f"limited by computing ({waiting:.0%} of the time waiting for pictures)"


def duration(seconds: float) -> str:
    """1:02:03."""
    minutes, seconds = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def cells(row: dict[str, Any]) -> list[str]:
    """A row of results, as people read it."""
    return [format(row[name], form) if row.get(name) is not None else "" for name, form in COLUMNS.items()]
