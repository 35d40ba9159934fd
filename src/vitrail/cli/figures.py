"""vitrail figures: the figures of "An Image is Worth 16x16 Words", for any checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vitrail.cli.options import config_options, json_option
from vitrail.cli.progress import progress

if TYPE_CHECKING:
    from torch import Tensor

    from vitrail.model.vit import VisionTransformer


@click.command()
@click.argument("model")
@click.argument("data", nargs=-1)
@click.option("--against", metavar="MODEL", help="A second checkpoint, drawn beside the first.")
@click.option("--images", type=click.IntRange(min=1), default=128, show_default=True, help="Pictures to average over.")
@click.option("--examples", type=click.IntRange(min=1), default=6, show_default=True, help="Pictures to show.")
@click.option("--format", "formats", default="png,svg", show_default=True, help="Of png, svg, pdf.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="A folder.  [default: runs/figures]")
@json_option
@config_options
def command(
    model: str,
    data: tuple[str, ...],
    against: str | None,
    images: int,
    examples: int,
    formats: str,
    out: Path | None,
    as_json: bool,
    config: Path | None,
    assignments: tuple[str, ...],
    print_config: bool,
) -> None:
    """Draw the paper's figures for a checkpoint.

    Filters and position similarity need only MODEL; mean attention distance and attention examples are drawn where
    DATA (files, folders, patterns) is given.
    """
    from vitrail.cli.model_argument import model_from_arguments

    settings, build = model_from_arguments(model, {}, config, assignments)
    if print_config:
        click.echo("\n".join(settings.lines()))
        return
    from vitrail.explain.figures import check_formats, figures
    from vitrail.runs.directory import next_free

    kinds = [part.strip() for part in formats.split(",") if part.strip()]
    check_formats(kinds)
    first = build(allocate=True)
    second = model_from_arguments(against, {}, None, ())[1](allocate=True) if against else None
    with progress() as told:
        made = figures(
            first,
            sampled(first, data, images),
            against=second,
            against_images=None if second is None else sampled(second, data, images),
            titles=(model, against or ""),
            examples=examples,
            progress=told,
        )
    paths = [str(path) for path in made.save(out or next_free(Path("runs/figures")), kinds)]
    click.echo(json.dumps({**made.data(), "files": paths}, indent=1) if as_json else "\n".join(paths))


def sampled(model: VisionTransformer, data: tuple[str, ...], count: int) -> Tensor | None:
    """An even sample of the pictures, if there are any."""
    from vitrail.cli.pictures import even_sample, tensors
    from vitrail.images.listing import list_inputs

    return tensors(model, even_sample(list_inputs(data).items, count), least=1)[0] if data else None
