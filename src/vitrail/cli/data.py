"""vitrail data: what is in a data set, and what is wrong with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import click

from vitrail.cli.many import plain
from vitrail.cli.options import json_option
from vitrail.errors import DataError, SomeInputsBad

if TYPE_CHECKING:
    from vitrail.images.check import DataReport, Group

MOST = 8  # examples of each kind of finding; --json lists all
MOST_CLASSES = 40


@click.group()
def command() -> None:
    """Look into a data set before anything is learnt from it."""


@command.command()
@click.argument("data")
@click.option("--channels", type=click.IntRange(min=1), default=3, show_default=True, help="Channels of the model.")
@click.option("--workers", type=click.IntRange(min=1), help="Threads that read pictures.  [default: one per processor]")
@click.option("--max-bad", type=float, metavar="N", help="Exit with 3 if more are unreadable; below 1, a share.")
@click.option("--strict", is_flag=True, help="Exit with 6 if a picture is unreadable, in two splits or in two classes.")
@click.option("--quiet", is_flag=True, help="No progress.")
@json_option
def check(
    data: str, channels: int, workers: int | None, max_bad: float | None, strict: bool, quiet: bool, as_json: bool
) -> None:
    """Find what is wrong with a data set.

    DATA has a folder per class (or train and val folders of such), or is a CSV or Parquet manifest, or tar shards.
    Every picture is read once and nothing is changed: pictures per class and split, files that cannot be read, exact
    and near duplicates, the same picture in two splits or two classes, and sizes, shapes and brightness far from the
    others'.
    """
    import msgspec

    from vitrail.cli.progress import progress
    from vitrail.images.check import check
    from vitrail.images.folder import read_data

    with progress(quiet=quiet) as told:
        found = check(read_data(data), channels=channels, workers=workers, progress=told)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=1))
    else:
        click.echo("\n".join(lines(found)))
    judge(found, max_bad, strict)


def lines(found: DataReport) -> Iterator[str]:
    """The report for people: what there is, then each kind of finding with examples."""
    yield from class_lines(found)
    yield counted("formats", found.formats)
    yield from (
        counted(name, counts) for name, counts in (("skipped", found.skipped), ("notes", found.notes)) if counts
    )
    yield from section("cannot be read", [f"{one.path}: {one.reason}" for one in found.unreadable])
    yield from section("in two splits: the test is not unseen", map(told_group, found.leaks))
    yield from section("in two classes: one label is wrong", map(told_group, found.contradictions))
    harmless = [group for group in found.duplicates if len(group.splits) == len(group.classes) == 1]
    for kind, title in (("exact", "the same files, in one class"), ("near", "nearly the same pictures, in one class")):
        yield from section(title, [told_group(group) for group in harmless if group.kind == kind])
    for kind in ("pixels", "shape", "brightness", "blank"):
        odd = sorted((one for one in found.outliers if one.kind == kind), key=lambda one: -abs(one.value - one.median))
        values = [f"{one.path}: {one.value:g}" + (f" (median {one.median:g})" if one.median else "") for one in odd]
        yield from section({"blank": "blank", "shape": "odd width by height"}.get(kind, f"odd {kind}"), values)
    yield from section("class names that look alike", [" | ".join(map(repr, names)) for names in found.alike_names])
    yield from [] if findings(found) else ["\nNothing is wrong."]


def class_lines(found: DataReport) -> Iterator[str]:
    """Pictures per class and split, the largest classes first where there are many."""
    splits = list(next(iter(found.classes.values())))
    rows = sorted(found.classes.items(), key=lambda row: -sum(row[1].values()))
    shown = dict(found.classes if len(rows) <= MOST_CLASSES else rows[:MOST_CLASSES])
    width = max(5, *(min(len(name), 40) for name in shown))
    yield f"{'class':{width}} " + " ".join(f"{split:>9}" for split in splits)
    for name, counts in shown.items():
        yield f"{plain(name):{width}} " + " ".join(f"{counts[split]:>9,}" for split in splits)
    if len(rows) > len(shown):
        smallest, pictures = rows[-1][0], sum(rows[-1][1].values())
        yield f"and {len(rows) - len(shown):,} smaller classes, the smallest {smallest!r} with {pictures}"
    totals = Counter({split: sum(counts[split] for counts in found.classes.values()) for split in splits})
    yield f"{'':{width}} " + " ".join(f"{totals[split]:>9,}" for split in splits)


def section(title: str, entries: Iterable[str]) -> Iterator[str]:
    """One kind of finding; nothing if there is none."""
    listed = list(entries)
    if listed:
        yield f"\n{len(listed):,} {title}"
        yield from (f"  {plain(entry)}" for entry in listed[:MOST])
        if len(listed) > MOST:
            yield f"  and {len(listed) - MOST:,} more (--json lists all)"


def told_group(group: Group) -> str:
    """Files that are the same, in one line."""
    shown: Sequence[str] = group.paths[:3]
    more = f" and {len(group.paths) - 3} more" if len(group.paths) > 3 else ""
    return " = ".join(shown) + more


def counted(name: str, counts: dict[str, int]) -> str:
    """Counts in one line."""
    return f"{name}: " + (", ".join(f"{count:,} {kind}" for kind, count in counts.items()) or "none")


def findings(found: DataReport) -> bool:
    """Whether there is anything to look at."""
    return bool(found.unreadable or found.duplicates or found.outliers or found.alike_names)


def judge(found: DataReport, max_bad: float | None, strict: bool) -> None:
    """What a shell is told."""
    bad, leaks, contradictions = len(found.unreadable), len(found.leaks), len(found.contradictions)
    if bad == found.pictures or (max_bad is not None and bad > (max_bad if max_bad >= 1 else max_bad * found.pictures)):
        raise DataError(
            f"{bad:,} of {found.pictures:,} pictures cannot be read.",
            f"At most {max_bad:g} (--max-bad)." if max_bad is not None else "At least one that can.",
            "Repair or remove them.",
        )
    if strict and (bad or leaks or contradictions):
        raise SomeInputsBad(
            f"Unreadable pictures: {bad:,}; the same in two splits: {leaks:,}; in two classes: {contradictions:,}.",
            "None, with --strict.",
            "Repair, remove or relabel them.",
        )
