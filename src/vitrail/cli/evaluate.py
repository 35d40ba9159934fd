"""vitrail evaluate: how good a model is on labelled pictures, and which ones it gets wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vitrail.cli.many import ENGINES, PRECISIONS, Shared, plain, settings_of
from vitrail.cli.options import config_options, json_option

if TYPE_CHECKING:
    from vitrail.cli.progress import Progress
    from vitrail.evaluate.evaluate import Evaluation
    from vitrail.evaluate.task import Asked

MOST_PAIRS = 5


@click.command()
@click.argument("model")
@click.argument("data")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="A folder.  [default: runs/evaluate]")
@click.option("--split", help="train, val or test.  [default: val, else test, else all]")
@click.option("--remap", is_flag=True, help="Measure on the classes that data and model both know.")
@click.option("--rename", multiple=True, metavar="DATA=MODEL", help="A class the model calls by another name.")
@click.option("--labels-split", default="", metavar="'|'", help="Between the labels of a picture that has several.")
@click.option("--engine", type=click.Choice(ENGINES), help="What runs the model.  [default: auto, by trial]")
@click.option(
    "--precision",
    type=click.Choice(PRECISIONS),
    help="exact: float32. balanced: bfloat16.  [default: balanced where the hardware has it]",
)
@click.option("--draws", type=click.IntRange(min=0), default=1000, show_default=True, help="Samples for the intervals.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of those samples.")
@click.option(
    "--max-bad",
    type=float,
    default=0.1,
    show_default=True,
    help="Exit with 3 if more are unreadable; below 1, a share.",
)
@click.option("--strict", is_flag=True, help="Exit with 6 if any picture cannot be read.")
@click.option("--dry-run", is_flag=True, help="Read the data, show what would be measured, and stop.")
@click.option("--quiet", is_flag=True, help="No progress.")
@json_option
@config_options
def command(model: str, data: str, out: Path | None, strict: bool, max_bad: float, **options: Any) -> None:
    """Measure a model on labelled pictures.

    DATA has a folder per class (or train and val folders of such), or is a CSV or Parquet manifest, or tar shards; its
    classes have to be the model's. The folder --out gets report.html, which needs no network, and tables. What has no
    flag is a setting: --set data.workers=4, --set engine.batch_size=32; --print-config shows them.
    """
    from vitrail.cli.progress import progress

    asked = asked_of(data, options)
    shared = shared_of(options, max_bad, strict)
    with progress(quiet=shared.quiet) as told:
        settings, running = settings_of(model, shared, told.say)
        if shared.print_config:
            click.echo("\n".join(settings.lines()))
        elif shared.dry_run:
            show_plan(asked, running.open().card.labels)
        else:
            folder = out or next_report()
            found = measured(running, asked, folder, options, told)
            show(found, folder, shared.as_json)
            judge(found, folder, shared)


def asked_of(data: str, options: dict[str, Any]) -> Asked:
    """Which pictures, from the options that say so."""
    from vitrail.errors import UsageError
    from vitrail.evaluate.task import Asked

    names = [text.partition("=") for text in options["rename"]]
    wrong = [text for text, (name, _, other) in zip(options["rename"], names, strict=True) if not (name and other)]
    if wrong:
        raise UsageError(f"--rename {wrong[0]!r} renames nothing.", "Written as DATA=MODEL.", "--rename kitty=cat")
    if names and options["remap"]:
        raise UsageError("--rename and --remap were both given.", "One of them.", "--remap drops what has no name.")
    remap = {name: other for name, _, other in names} or options["remap"]
    return Asked(data, options["split"], remap, options["labels_split"])


def shared_of(options: dict[str, Any], max_bad: float, strict: bool) -> Shared:
    """The options that other commands have too."""
    names = ("engine", "precision", "dry_run", "quiet", "as_json", "config", "assignments", "print_config")
    return Shared(resume=False, max_bad=max_bad, strict=strict, **{name: options[name] for name in names})


def next_report() -> Path:
    """runs/evaluate, or the next of that name that is free."""
    from vitrail.runs.directory import next_free

    return next_free(Path("runs/evaluate"))


def measured(running: Any, asked: Asked, folder: Path, options: dict[str, Any], told: Progress) -> Evaluation:
    """The evaluation, with its report written."""
    from vitrail.evaluate.evaluate import evaluated

    return evaluated(running, asked, out=folder, draws=options["draws"], seed=options["seed"], told=told)


def show_plan(asked: Asked, labels: tuple[str, ...]) -> None:
    """What would be measured."""
    from vitrail.evaluate.task import task_for

    dataset, split = asked.read()
    task = task_for(dataset, split, labels, asked)
    left = sum(task.left_out.values())
    click.echo(
        f"{len(task.samples):,} pictures of {split}, {len(labels):,} classes" + (f", {left:,} left out" if left else "")
    )


def show(found: Evaluation, folder: Path, as_json: bool) -> None:
    """The measures as a table, or everything as one document."""
    from vitrail.evaluate.save import as_data, encoded

    if as_json:
        click.echo(encoded({**as_data(found), "out": str(folder)}))
    else:
        click.echo("\n".join(lines(found)))
        click.echo(f"\n{folder / 'report.html'}")


def lines(found: Evaluation) -> Iterator[str]:
    """Measures with their intervals, what it cost, and what is confused most."""
    from vitrail.evaluate.matrix import confusions
    from vitrail.evaluate.measures import MEASURES, interval, number, shown_names

    metrics, cost = found.metrics, found.cost
    bad = f", and {len(found.bad):,} that cannot be read" if found.bad else ""
    yield f"{metrics.pictures:,} pictures of {len(metrics.classes):,} classes{bad}"
    if found.left_out:
        yield f"left out, of classes the model does not know: {sum(found.left_out.values()):,}"
    yield f"\n{'':34} {'value':>9}   95% interval"
    for name in shown_names(metrics.values):
        value = metrics.values[name]
        yield f"{MEASURES[name].title:34} {number(name, value.value):>9}   {interval(name, value)}".rstrip()
    if metrics.temperature:
        yield f"{'temperature that fits best':34} {metrics.temperature:9.3f}"
    yield f"{'pictures per second':34} {cost.pictures_per_second:9,.1f}   {cost.engine}, {cost.precision}"
    yield f"{'peak memory':34} {cost.peak_memory_mb:6,.0f} MB"
    labels = found.answered.labels
    pairs = confusions(metrics.confusion)[:MOST_PAIRS]
    yield from ["\nmost confused"] if pairs else []
    for true, said, pictures in pairs:
        yield f"{pictures:6,}  {plain(labels[true])} taken for {plain(labels[said])}"


def judge(found: Evaluation, folder: Path, shared: Shared) -> None:
    """What a shell is told."""
    from vitrail.errors import SomeInputsBad
    from vitrail.evaluate.evaluate import check_bad

    assert shared.max_bad is not None
    check_bad(found, shared.max_bad, folder)
    if found.bad and shared.strict:
        raise SomeInputsBad(
            f"{len(found.bad):,} of {len(found.rows):,} pictures cannot be read.",
            "None, with --strict.",
            f"See {folder / 'bad_images.csv'}.",
        )
