"""vitrail train: from a folder of pictures to a model, or on with a run that was stopped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vitrail.cli.options import config_options, json_option
from vitrail.errors import UsageError

if TYPE_CHECKING:
    from vitrail.train.presets import Preset
    from vitrail.train.run import TrainResult
    from vitrail.train.start import Plan


@click.command()
@click.argument("data", required=False)
@click.option("--model", metavar="MODEL", help="A checkpoint, or a name such as S/16 for fresh weights.")
@click.option("--out", type=click.Path(path_type=Path), metavar="RUN", help="A new folder.  [default: runs/DATA]")
@click.option("--resume", type=click.Path(path_type=Path), metavar="RUN", help="Go on with a run, to the same bits.")
@click.option(
    "--preset",
    type=click.Choice(["quick", "balanced", "best", "none"]),
    help="What is set where nothing else is.  [default: balanced; with --config, none]",
)
@click.option("--time-budget", default="", metavar="20m", help="As many epochs as fit, by timing a few steps.")
@click.option("--lr-find", is_flag=True, help="Try rates for a hundred steps, draw the curve, suggest one, and stop.")
@click.option("--epochs", type=int, metavar="N", help="How often every picture is seen.")
@click.option("--max-bad", type=float, metavar="N", help="Unreadable pictures to put up with; below 1, a share.")
@click.option("--dry-run", is_flag=True, help="Read the data, show what would be done, and stop.")
@click.option("--quiet", is_flag=True, help="No progress.")
@json_option
@config_options
def command(
    data: str | None,
    model: str | None,
    out: Path | None,
    resume: Path | None,
    preset: Preset | None,
    time_budget: str,
    lr_find: bool,
    epochs: int | None,
    max_bad: float | None,
    dry_run: bool,
    quiet: bool,
    as_json: bool,
    config: Path | None,
    assignments: tuple[str, ...],
    print_config: bool,
) -> int:
    """Train a model on a folder of pictures.

    DATA has a folder per class (or train and val folders of such), or is a CSV or Parquet manifest, or tar shards.
    Everything that has no flag is a setting: --set train.lr=1e-3, --set augment.policy=trivial; --print-config shows
    them all. Ctrl-C and SIGTERM commit the run, and --resume goes on.
    """
    from vitrail.settings import user_layers
    from vitrail.train.settings import SECTIONS

    flags = {"train.epochs": epochs, "train.max_bad": max_bad}
    layers = user_layers(SECTIONS, config=config, assignments=assignments, flags=flags)
    preset = preset or ("none" if config else "balanced")
    only_new = {"--dry-run": dry_run, "--print-config": print_config, "--time-budget": bool(time_budget)}
    refuse_together(resume, only_new | {"--lr-find": lr_find})
    if dry_run or print_config or lr_find:
        from vitrail.train.run import planned

        plan = planned(data, model, preset=preset, time_budget=time_budget, settings=layers)
        if lr_find and not (dry_run or print_config):
            suggest_rate(plan, out, quiet, as_json)
        else:
            show_plan(plan, print_config, as_json)
        return 0
    from vitrail.train.run import train

    result = train(
        *(data, model),
        out=out,
        resume=resume,
        preset=preset,
        time_budget=time_budget,
        settings=layers,
        quiet=quiet or as_json,
    )
    if result.rank == 0:
        show(result, as_json)
    return result.exit_code


def refuse_together(resume: Path | None, flags: dict[str, bool]) -> None:
    """What cannot be asked of a run that goes on."""
    given = [name for name, on in flags.items() if on]
    if resume is not None and given:
        raise UsageError(f"{given[0]} was given with --resume.", "A run that goes on has its plan.", "Leave one out.")


def show_plan(plan: Plan, every_setting: bool, as_json: bool) -> None:
    """What would be done, or every setting and where it came from."""
    import msgspec

    if as_json:
        records = {name: msgspec.to_builtins(record) for name, record in plan.settings.records.items()}
        document = {"config": records, "origins": dict(plan.settings.origins), "notes": plan.notes}
        click.echo(json.dumps({"schema_version": 1, **document}, indent=1))
    elif every_setting:
        click.echo("\n".join(plan.settings.lines()))
    else:
        data = plan.data
        split = f"{len(data.train):,} pictures to train on, {len(data.val):,} to validate"
        click.echo(f"data: {split}, {len(data.classes)} classes")
        click.echo("\n".join(plan.notes))


def suggest_rate(plan: Plan, out: Path | None, quiet: bool, as_json: bool) -> None:
    """The learning rate to begin with, and the curve it was read from."""
    from vitrail.cli.progress import progress
    from vitrail.runs.directory import next_free
    from vitrail.train.rates import find_rate, save

    with progress("steps", quiet=quiet or as_json) as told:
        found = find_rate(plan, told=told)
    files = save(found, out or next_free(Path("runs/lr-find")))
    if as_json:
        curve = {"rates": found.rates, "losses": found.losses, "files": [str(file) for file in files]}
        click.echo(json.dumps({"schema_version": 1, "suggestion": found.suggestion, **curve}, indent=1))
    else:
        click.echo(f"suggested: --set train.lr={found.suggestion:g}")
        click.echo(f"{len(found.rates)} rates from {found.rates[0]:g} to {found.rates[-1]:g}: {files[1]}")


def show(result: TrainResult, as_json: bool) -> None:
    """What came of it."""
    if as_json:
        click.echo(json.dumps(as_data(result), indent=1))
        return
    best = ", ".join(f"{name.removeprefix('val_')} {value}" for name, value in result.best.items() if "val" in name)
    click.echo(f"{result.path}: {result.status} after {result.epochs} epochs")
    if result.best_epoch:
        click.echo(
            f"best: epoch {result.best_epoch}{f' ({best})' if best else ''} -> {result.path / 'weights' / 'best'}"
        )
    if (result.path / "report.html").is_file():
        click.echo(f"report: {result.path / 'report.html'}")
    if result.status == "preempted":
        click.echo(f"go on with: vitrail train --resume {result.path}")


def as_data(result: TrainResult) -> dict[str, Any]:
    """The JSON document."""
    return {
        "schema_version": 1,
        "run": str(result.path),
        "status": result.status,
        "epochs": result.epochs,
        "best_epoch": result.best_epoch,
        "best": result.best,
        "history": list(result.history),
    }
