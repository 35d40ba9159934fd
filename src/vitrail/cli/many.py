"""What commands that answer for any number of pictures share: options, how the model is run, and how it all ends."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vitrail.cli.options import Command, config_options, json_option
from vitrail.errors import DataError, SomeInputsBad

if TYPE_CHECKING:
    from vitrail.bulk.running import Running
    from vitrail.bulk.written import Written
    from vitrail.images.listing import Inputs
    from vitrail.settings import Settings

ENGINES, PRECISIONS = ("auto", "openvino", "torch", "onnxruntime"), ("exact", "balanced")  # a test compares


@dataclass(frozen=True)
class Shared:
    """The options of `shared_options`, as they were given."""

    resume: bool
    engine: str | None
    precision: str | None
    max_bad: float | None
    strict: bool
    dry_run: bool
    quiet: bool
    as_json: bool
    config: Path | None
    assignments: tuple[str, ...]
    print_config: bool


def shared_options(command: Command) -> Command:
    """The options of every such command."""
    options = [
        click.option("--resume", is_flag=True, help="Go on with an --out that was interrupted."),
        click.option("--engine", type=click.Choice(ENGINES), help="What runs the model.  [default: auto, by trial]"),
        click.option(
            "--precision",
            type=click.Choice(PRECISIONS),
            help="exact: float32. balanced: bfloat16.  [default: balanced where the hardware has it]",
        ),
        click.option("--max-bad", type=float, metavar="N", help="Exit with 3 if more are bad; below 1, a share."),
        click.option("--strict", is_flag=True, help="Exit with 6 if any picture cannot be read."),
        click.option("--dry-run", is_flag=True, help="List and count the files, and stop."),
        click.option("--quiet", is_flag=True, help="No progress."),
        json_option,
        config_options,
    ]
    for option in reversed(options):
        command = option(command)
    return command


def settings_of(model: str, shared: Shared, say: Callable[[str], None]) -> tuple[Settings, Running]:
    """Every setting with its origin, and the model as it is to be run; `model.*` are fields to load it with."""
    from vitrail.bulk.running import Running
    from vitrail.bulk.settings import SECTIONS, EngineConfig, PictureConfig
    from vitrail.config import ViTConfig
    from vitrail.settings import Layer, Sections, resolve, user_layers

    flags = {"engine.name": shared.engine, "engine.precision": shared.precision}
    known: Sections = {"model": ViTConfig, **SECTIONS}
    layers = user_layers(known, config=shared.config, assignments=shared.assignments, flags=flags)
    pairs = [(layer, key, value) for layer in layers for key, value in layer.values.items()]
    fields = {key.removeprefix("model."): value for _, key, value in pairs if key.startswith("model.")}
    others = [Layer(layer.origin, {key: value}) for layer, key, value in pairs if not key.startswith("model.")]
    settings = resolve(SECTIONS, others)
    engine, pictures = settings.records["engine"], settings.records["data"]
    assert isinstance(engine, EngineConfig)
    assert isinstance(pictures, PictureConfig)
    return settings, Running(model, fields, engine, pictures, say)


def listed(names: Sequence[str], say: Callable[[str], None]) -> Inputs:
    """The files the names stand for; what was skipped is said."""
    from vitrail.images.listing import list_inputs

    inputs = list_inputs(names, sys.stdin.buffer)
    if inputs.skipped:
        say("Skipped: " + ", ".join(f"{count:,} {kind}" for kind, count in sorted(inputs.skipped.items())) + ".")
    return inputs


def only_shown(settings: Settings, paths: Sequence[str], shared: Shared, say: Callable[[str], None]) -> bool:
    """Whether the settings or the number of files was all that was asked for; if so, it has been shown."""
    if shared.print_config:
        click.echo("\n".join(settings.lines()))
    elif shared.dry_run:
        click.echo(f"{len(listed(paths, say).items):,} files")
    return shared.print_config or shared.dry_run


@contextmanager
def ending(out: Path) -> Iterator[None]:
    """A signal ends the work after what is at hand is kept, with the exit code shells expect."""
    from vitrail.runs.signals import Interrupted

    try:
        yield
    except Interrupted as signal:
        click.echo(f"vitrail: interrupted; {out} goes on with the same command and --resume.", err=True)
        sys.exit(128 + signal.number)


def plain(text: str) -> str:
    """Text for a line or a terminal: control characters, which file names may have, as escapes."""
    return "".join(mark if mark.isprintable() else mark.encode("unicode_escape").decode() for mark in text)


def report(written: Written, shared: Shared) -> None:
    """The summary of what is in a file now."""
    data = {"schema_version": 1, "out": str(written.out), "rows": written.rows, "errors": dict(written.errors)}
    click.echo(json.dumps(data, indent=1) if shared.as_json else str(written))


def judge(rows: int, bad: int, shared: Shared, where: Any) -> None:
    """The end of a command that has answered for every file it could; `where` says which it could not."""
    found, most = f"{bad:,} of {rows:,} pictures cannot be read.", shared.max_bad
    if most is not None and bad > (most if most >= 1 else most * rows):
        raise DataError(found, f"At most {most:g} (--max-bad).", f"See {where}.")
    if bad == rows:
        raise DataError(found, "At least one that can.", f"See {where}.")
    if bad and shared.strict:
        raise SomeInputsBad(found, "None, with --strict.", f"See {where}.")
