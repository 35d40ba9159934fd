"""vitrail trace: the walk of a picture through a model, printed."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vitrail.cli.options import config_options, json_option

if TYPE_CHECKING:
    from rich.table import Table

    from vitrail.explain.trace import Shape, Stage, Trace


@click.command()
@click.argument("model", required=False)
@click.argument("image", required=False, type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--batch", type=click.IntRange(min=1), metavar="N", help="Pictures in the batch.  [default: 32; 1 with an image]"
)
@click.option("--classes", type=click.IntRange(min=0), metavar="N", help="Classes the model tells apart.")
@click.option("--all", "every_block", is_flag=True, help="Unfold every block, not only the first.")
@json_option
@config_options
def command(
    model: str | None,
    image: Path | None,
    batch: int | None,
    classes: int | None,
    every_block: bool,
    as_json: bool,
    config: Path | None,
    assignments: tuple[str, ...],
    print_config: bool,
) -> None:
    """Walk a picture through a model, stage by stage.

    MODEL is a checkpoint or a name such as B/16 or R50+B/16 (see vitrail models); without one, the walk goes through
    ViT-B/16 with a pooler. With an IMAGE the numbers are live; without, shapes come from the same forward pass run
    on tensors that have a shape but no memory.
    """
    from vitrail.cli.model_argument import model_from_arguments

    settings, build = model_from_arguments(model, {"model.num_classes": classes}, config, assignments)
    if print_config:
        click.echo("\n".join(settings.lines()))
        return
    from vitrail.config import ViTConfig
    from vitrail.explain.trace import trace

    made = settings.records["model"]
    assert isinstance(made, ViTConfig)
    check_picture(image, made.num_channels)
    walk = trace(build(allocate=image is not None), image, batch)
    click.echo(as_json_text(walk)) if as_json else show(walk, every_block)


def check_picture(image: Path | None, channels: int) -> None:
    """A picture that cannot be read is refused by name, and before a large model is made to look at it."""
    from vitrail.errors import DataError
    from vitrail.images.decode import decode

    try:
        if image is not None:
            decode(image, channels=channels)
    except DataError as bad:
        raise DataError(f"{image}: {bad.found}", bad.expected, bad.fix) from None


def as_json_text(walk: Trace) -> str:
    """The whole walk as one JSON document."""
    import msgspec

    return msgspec.json.format(
        msgspec.json.encode({"schema_version": 1} | msgspec.to_builtins(walk)), indent=2
    ).decode()


def show(walk: Trace, every_block: bool) -> None:
    """The walk as a table where it fits, else a few lines per stage."""
    from rich.console import Console
    from rich.text import Text

    live = any(stage.live for stage in walk.stages)
    rows = list(shown_rows(walk, every_block, live))
    table = as_table(rows, live)
    needed = Console(width=1000, height=25).measure(table).maximum  # with both, no TERM has a say
    size = (None, None) if sys.stdout.isatty() else (needed, 25)
    console = Console(width=size[0], height=size[1], highlight=False, markup=False)
    console.print(table if needed <= console.width else "\n".join(stacked(rows)))
    first, last = walk.stages[0].output, walk.stages[-1].output
    summary = (
        f"{spelled(first)} -> {spelled(last)}: {walk.parameters:,} parameters, {walk.multiply_adds:,} multiply-adds"
    )
    console.print(Text(summary, style="bold"))


def shown_rows(walk: Trace, every_block: bool, live: bool) -> Iterator[list[str]]:
    """A line per stage, blocks after the first folded unless asked for; an empty one between the parts."""
    for stage in walk.stages:
        block = block_number(stage.name)
        last = stage.name == f"blocks.{block}.out"
        if block is None or block == 0 or every_block:
            if stage.name == "blocks.0.norm1":
                yield []
            yield cells(stage, live)
        elif last and block == walk.config.num_hidden_layers - 1:
            yield folded(walk, live)
        if last and (block == 0 or every_block or block == walk.config.num_hidden_layers - 1):
            yield []


COLUMNS = ("stage", "Hugging Face", "Google", "computes", "in", "out", "parameters", "multiply-adds")
LIVE = "mean ± std [min, max]"


def as_table(rows: list[list[str]], live: bool) -> Table:
    """All columns side by side."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE, pad_edge=False, collapse_padding=True)
    for name in COLUMNS[:4]:
        table.add_column(name, overflow="fold")
    for name in (*COLUMNS[4:], *[LIVE] * live):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*row) if row else table.add_section()
    return table


def stacked(rows: list[list[str]]) -> Iterator[str]:
    """The same for a narrow terminal."""
    for row in rows:
        if not row:
            yield ""
            continue
        name, hf, google, formula, before, after, parameters, multiply_adds, *live = row
        yield f"{name:22}  {f'{before} -> ' if before else ''}{after}"
        yield f"    {formula}"
        if parameters:
            yield f"    {parameters} parameters"
        if multiply_adds:
            yield f"    {multiply_adds} multiply-adds"
        if any(live):
            yield f"    {LIVE}: {live[0]}"
        yield f"    Hugging Face: {hf}; Google: {google}"


def cells(stage: Stage, live: bool) -> list[str]:
    """One stage as a line of the table."""
    counts = [f"{count:,}" if count else "" for count in (stage.parameters, stage.multiply_adds)]
    row = [stage.name, stage.hf, stage.google, stage.formula, spelled(stage.input), spelled(stage.output), *counts]
    if live:
        numbers = stage.live
        row.append(f"{numbers.mean:.3g} ± {numbers.std:.3g} [{numbers.min:.3g}, {numbers.max:.3g}]" if numbers else "")
    return row


def folded(walk: Trace, live: bool) -> list[str]:
    """All blocks after the first in one line."""
    rest = [stage for stage in walk.stages if block_number(stage.name)]
    counts = [f"{sum(getattr(stage, field) for stage in rest):,}" for field in ("parameters", "multiply_adds")]
    last = walk.config.num_hidden_layers - 1
    name = f"blocks.1-{last}" if last > 1 else "blocks.1"
    shapes = [spelled(rest[0].input), spelled(rest[-1].output)]
    return [name, f"{last} more ViTLayer", f"{last} more Block", "as block 0; --all unfolds", *shapes, *counts] + [
        ""
    ] * live


def block_number(name: str) -> int | None:
    """The block a stage belongs to."""
    found = re.match(r"blocks\.(\d+)\.", name)
    return int(found[1]) if found else None


def spelled(shape: Shape) -> str:
    """32x3x224x224."""
    return "x".join(map(str, shape))
