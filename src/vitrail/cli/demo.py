"""vitrail demo: the main job on what comes along, as commands one could type."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import click

from vitrail.errors import UsageError


@click.command()
@click.option("--out", type=click.Path(path_type=Path), metavar="FOLDER", help="A new folder.  [default: runs/demo]")
@click.option("--epochs", type=int, metavar="N", help="How often every digit is seen; the recipe says 6.")
def command(out: Path | None, epochs: int | None) -> None:
    """Train, measure, predict and explain, in about a minute.

    A model of cats and dogs and 1,797 handwritten digits come with vitrail. The model is looked into, then trained on
    the digits, measured, and asked; every step is a command, printed before it runs.
    """
    from vitrail.images.digits import write_digits
    from vitrail.runs.directory import next_free

    folder = out or next_free(Path("runs/demo"))
    if folder.exists():
        raise UsageError(f"{folder} exists already.", "A new folder.", "Choose another --out.")
    digits = write_digits(folder / "digits")
    click.echo(f"{digits}: 1,797 handwritten digits, a folder for each class")
    for arguments in steps(folder, digits, epochs):
        run(arguments)
    show_what_to_open(folder)


def steps(folder: Path, digits: Path, epochs: int | None) -> Iterator[list[str]]:
    """The commands, without `vitrail`."""
    from vitrail.images.digits import SAMPLES
    from vitrail.recipe import recipe

    cat = str(SAMPLES / "cat.jpg")
    trained = str(folder / "digits-run")
    less = ["--epochs", str(epochs)] if epochs else []
    yield ["trace", "demo", cat]
    yield ["explain", "demo", cat, "--method", "relevance", "--out", str(folder / "cat")]
    yield ["train", str(digits), "--model", "demo", "--config", recipe("digits").path, "--out", trained, *less]
    yield ["predict", trained, str(digits / "val" / "*" / "004.png")]
    yield ["explain", trained, str(digits / "val" / "3" / "004.png"), "--out", str(folder / "three")]


def run(arguments: list[str]) -> None:
    """Show a command and run it here: a process of its own would import torch again."""
    from vitrail.cli import vitrail

    click.secho(f"\n$ vitrail {shlex.join(arguments)}", bold=True)
    vitrail.main(arguments, standalone_mode=False)


def show_what_to_open(folder: Path) -> None:
    """Every page that was made."""
    click.echo("\nOpen in a browser:")
    for page in sorted(folder.rglob("*.html")):
        click.echo(f"  {page}")
