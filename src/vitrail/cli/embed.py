"""vitrail embed: any number of pictures to a model's features, with their neighbours and duplicates."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vitrail.cli.many import Shared, ending, judge, listed, only_shown, plain, report, settings_of, shared_options
from vitrail.cli.progress import progress

if TYPE_CHECKING:
    from vitrail.bulk.running import Running
    from vitrail.cli.progress import Progress
    from vitrail.embed.embed import Feature
    from vitrail.embed.embedding import Embeddings

FEATURES = ("token", "mean", "grid")  # a test compares


@click.command()
@click.argument("model")
@click.argument("paths", nargs=-1, required=True, metavar="PATHS...")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="A .npy, .npz or .parquet file.")
@click.option(
    "--feature",
    type=click.Choice(FEATURES),
    default="token",
    show_default=True,
    help="The class token, the mean of the patches, or every patch.",
)
@click.option("--neighbours", type=click.IntRange(min=0), default=0, metavar="K", help="List the K nearest of each.")
@shared_options
def command(
    model: str, paths: tuple[str, ...], out: Path | None, feature: Feature, neighbours: int, **options: Any
) -> None:
    """Turn pictures into features.

    PATHS are files, folders, patterns ('photos/**/*.jpg'), CSV or Parquet manifests, tar files, or - for a list on
    stdin. Every file is one row, in sorted order, also one that cannot be read. With --out the features go to a file
    (a .npy has its names in a .csv beside it), and --resume goes on after any interruption; without it duplicates and
    neighbours are shown, or with --json everything. What has no flag is a setting: --set data.workers=4.
    """
    shared = Shared(**options)
    with progress(quiet=shared.quiet) as told:
        settings, running = settings_of(model, shared, told.say)
        if only_shown(settings, paths, shared, told.say):
            return
        if out is None:
            show(running, paths, feature, neighbours, shared, told)
        else:
            write(running, paths, out, feature, neighbours, shared, told)


def show(
    running: Running, paths: tuple[str, ...], feature: Feature, neighbours: int, shared: Shared, told: Progress
) -> None:
    """A line per picture: what it shares with others, for people; with its features, for programs."""
    from vitrail.embed.embed import in_memory

    found = in_memory(running, listed(paths, told.say).items, feature, neighbours, told=told)
    if shared.as_json:
        as_json_lines(found)
    else:
        for row in found:
            click.echo(plain(repr(row)))
        click.echo(found.summary)
    judge(len(found), len(found.errors), shared, "the rows above")


def as_json_lines(found: Embeddings) -> None:
    """A line of JSON per file, with its features; null where there are none."""
    import msgspec

    for row, values in zip(found, found.values, strict=True):
        feature = None if row.error else values.tolist()
        line = {"schema_version": 1, **msgspec.to_builtins(row), "feature": feature}
        click.echo(msgspec.json.encode(line))


def write(
    running: Running,
    paths: tuple[str, ...],
    out: Path,
    feature: Feature,
    neighbours: int,
    shared: Shared,
    told: Progress,
) -> None:
    """Everything in a file, and a summary."""
    from vitrail.embed.embed import to_file

    with ending(out):
        written = to_file(
            *(running, out, paths, lambda: listed(paths, told.say).items, feature, neighbours),
            resume=shared.resume,
            told=told,
        )
    report(written, shared)
    judge(written.rows, written.bad, shared, out)
