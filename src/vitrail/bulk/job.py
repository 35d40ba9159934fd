"""A job: a frozen list of files, its rows in parts beside the table they will be, and the table when all are there.

photos.csv.parts/inputs.lock     the list, and what was asked of it
photos.csv.parts/part-...        the rows so far
photos.csv                       all rows, in order: the parts are gone then
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

from vitrail.bulk import frozen, parts
from vitrail.bulk.frozen import Frozen
from vitrail.errors import EnvironmentProblem, UsageError
from vitrail.images.listing import Item
from vitrail.runs.lock import held
from vitrail.runs.signals import Signals, watched

Told: TypeAlias = Callable[[int, int], None]  # so many of so many files are done
Rows: TypeAlias = tuple[Sequence[bytes], bytes]  # lines of JSON, and the numbers that go with them


@dataclass(frozen=True)
class Job:
    """Where the result will be, where it comes together, and what it is a result of."""

    out: Path
    folder: Path
    head: Frozen

    def parts(self, row_bytes: int = 0) -> list[parts.Part]:
        """What is finished."""
        return parts.finished(self.folder, row_bytes)

    def lines(self, row_bytes: int = 0) -> Iterator[bytes]:
        """Every finished row, in order."""
        for part in self.parts(row_bytes):
            yield from part.lines()

    def discard(self) -> None:
        """Remove the parts: the result has its name."""
        shutil.rmtree(self.folder)


def folder_of(out: Path) -> Path:
    """Where the parts of a result are."""
    return out.with_name(f"{out.name}.parts")


def is_finished(out: Path, resume: bool) -> bool:
    """Whether there is nothing left to do; a result that was not asked to go on is never touched."""
    if resume and out.exists():
        shutil.rmtree(folder_of(out), ignore_errors=True)  # killed after the result took its name
        return True
    if out.exists():
        raise UsageError(f"{out} exists.", "A name for new results.", "Choose another --out, or remove it.")
    return False


@contextmanager
def opened(out: Path, asked: Mapping[str, Any], listed: Callable[[], Sequence[Item]], *, resume: bool) -> Iterator[Job]:
    """A job begun or gone on with, held so that no second process works on it; `asked` is plain JSON."""
    folder = folder_of(out)
    begun = (folder / frozen.NAME).exists()
    if begun and not resume:
        raise UsageError(
            f"{folder} holds the parts of {out} so far.",
            "A new result, or --resume.",
            f"Go on with --resume, or remove {folder}.",
        )
    items = None if begun else listed()  # before anything is written
    make(folder)
    with held(folder / ".lock", f"Another process is writing {out}."):
        head = frozen.read_head(folder) if items is None else frozen.freeze(folder, items, asked)
        check_same(head, asked, folder)
        job = Job(out, folder, head)
        try:
            yield job
        except BaseException:
            if not begun and not list(folder.glob("part-*")):
                job.discard()  # nothing has been done: leave nothing
            raise


def work(job: Job, answer: Callable[[Iterable[Item]], Iterator[Rows]], *, row_bytes: int = 0, told: Told) -> None:
    """From where the finished parts end to the last file of the list; a signal ends it after the rows at hand."""
    finished = job.parts(row_bytes)
    first = finished[-1].end if finished else 0
    told(first, job.head.count)
    signals = Signals()
    with watched(signals), parts.Parts(job.folder, first) as writer:
        for rows, numbers in answer(islice(frozen.read_items(job.folder), first, None)):
            writer.add(rows, numbers)
            told(writer.end, job.head.count)
            signals.check()


def check_same(head: Frozen, asked: Mapping[str, Any], folder: Path) -> None:
    """Refuse to go on with another question: half of the rows would answer the one, half the other."""
    before, now = dict(head.asked) | {"folder": head.folder}, dict(asked) | {"folder": os.getcwd()}  # noqa: PTH109
    for name in sorted(before.keys() | now.keys()):
        if before.get(name) != now.get(name):
            raise UsageError(
                f"{folder} was begun with {name} {before.get(name)!r}; now it is {now.get(name)!r}.",
                "The same question, with --resume.",
                f"Ask as before, or remove {folder} and begin again.",
            )


def make(folder: Path) -> None:
    """The folder of a job, in a folder that exists."""
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise EnvironmentProblem(
            f"{folder} cannot be made ({error.strerror}).", "A folder that can be written to.", "Choose another --out."
        ) from None


def refuse_inside(out: Path, pictures: Iterable[str]) -> None:
    """A result among the pictures would be a picture to the next run."""
    for name in pictures:
        if Path(name).is_dir() and out.resolve().is_relative_to(Path(name).resolve()):
            raise UsageError(
                f"{out} is inside {name}, among the pictures.", "A place of its own.", "Choose another --out."
            )
