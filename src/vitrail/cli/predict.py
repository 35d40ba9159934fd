"""vitrail predict: any number of pictures to the classes a model sees in them."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vitrail.cli.many import Shared, ending, judge, listed, only_shown, plain, report, settings_of, shared_options
from vitrail.cli.progress import progress

if TYPE_CHECKING:
    from rich.table import Table

    from vitrail.bulk.running import Running
    from vitrail.cli.progress import Progress
    from vitrail.predict.prediction import Prediction


@click.command()
@click.argument("model")
@click.argument("paths", nargs=-1, required=True, metavar="PATHS...")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="A .csv, .jsonl or .parquet file.")
@click.option("--top", type=click.IntRange(min=1), default=5, show_default=True, help="Classes to list per picture.")
@shared_options
def command(model: str, paths: tuple[str, ...], out: Path | None, top: int, **options: Any) -> None:
    """Name what is in pictures.

    PATHS are files, folders, patterns ('photos/**/*.jpg'), CSV or Parquet manifests, tar files, or - for a list on
    stdin. Every file is one row, in sorted order, also one that cannot be read. With --out the rows are kept as they
    come, and --resume goes on after any interruption; without it they are shown. What has no flag is a setting:
    --set data.workers=4, --set engine.batch_size=32, --set model.num_attention_heads=4; --print-config shows them.
    """
    shared = Shared(**options)
    with progress(quiet=shared.quiet) as told:
        settings, running = settings_of(model, shared, told.say)
        if only_shown(settings, paths, shared, told.say):
            return
        if out is None:
            show(running, paths, top, shared, told)
        else:
            write(running, paths, out, top, shared, told)


def show(running: Running, paths: tuple[str, ...], top: int, shared: Shared, told: Progress) -> None:
    """Every answer as it comes: a table for people, JSON lines for programs."""
    from vitrail.predict.predict import answered

    items = listed(paths, told.say).items
    engine = running.open(batch=1 if len(items) == 1 else 0)
    show_some = as_json_lines if shared.as_json else as_table if sys.stdout.isatty() else as_lines
    rows = bad = 0
    told(rows, len(items))
    for some in answered(engine, items, running.pictures, top):
        show_some(some, top)
        rows += len(some)
        bad += sum(row.error is not None for row in some)
        told(rows, len(items))
    judge(rows, bad, shared, "the rows above")


def write(running: Running, paths: tuple[str, ...], out: Path, top: int, shared: Shared, told: Progress) -> None:
    """Every answer in a file, and a summary."""
    from vitrail.predict.predict import to_table

    with ending(out):
        written = to_table(
            *(running, out, paths, lambda: listed(paths, told.say).items), top=top, resume=shared.resume, told=told
        )
    report(written, shared)
    judge(written.rows, written.bad, shared, out)


def as_json_lines(rows: Iterable[Prediction], top: int) -> None:
    """A line of JSON per file."""
    from vitrail.predict.prediction import as_line

    for row in rows:
        click.echo(b'{"schema_version":1,' + as_line(row, top)[1:], nl=False)


def as_lines(rows: Iterable[Prediction], _top: int) -> None:
    """A line of text per file: name, then answers or the error, separated by tabs."""
    for row in rows:
        click.echo("\t".join([plain(row.path), *map(str, row.top)] if row.top else [plain(row.path), row.error or ""]))


def as_table(rows: Iterable[Prediction], _top: int) -> None:
    """Columns that share the terminal's width: tables of several batches stand below each other as one."""
    from rich.console import Console

    console = Console()
    wide = max(console.width - 12, 30)  # without the probability and the gaps
    for bad, some in groupby(rows, key=lambda row: row.error is not None):
        console.print((error_table if bad else answer_table)(some, wide))


def answer_table(rows: Iterable[Prediction], wide: int) -> Table:
    """The name, the class, how probable it is, and the next ones as far as there is room."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(width=wide * 4 // 10, overflow="fold")
    table.add_column(width=wide * 3 // 10, overflow="fold")
    table.add_column(width=6, justify="right")
    table.add_column(width=wide * 3 // 10, no_wrap=True, overflow="ellipsis", style="dim")
    for row in rows:
        then = ", ".join(map(str, row.top[1:]))
        table.add_row(Text(plain(row.path)), Text(row.label or ""), f"{row.probability:.1%}", Text(then))
    return table


def error_table(rows: Iterable[Prediction], wide: int) -> Table:
    """The name, and why there is no answer."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(width=wide * 4 // 10, overflow="fold")
    table.add_column(width=wide * 6 // 10 + 8, overflow="fold", style="red")
    for row in rows:
        table.add_row(Text(plain(row.path)), Text(row.error or ""))
    return table
