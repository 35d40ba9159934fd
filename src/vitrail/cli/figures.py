"""vitrail figures: the figures of "An Image is Worth 16x16 Words", for any checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vitrail.cli.options import config_options, json_option

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
    made = figures(
        first,
        sampled(first, data, images),
        against=second,
        against_images=None if second is None else sampled(second, data, images),
        titles=(model, against or ""),
        examples=examples,
    )
    paths = [str(path) for path in made.save(out or next_free(Path("runs/figures")), kinds)]
    click.echo(json.dumps({**made.data(), "files": paths}, indent=1) if as_json else "\n".join(paths))


def sampled(model: VisionTransformer, data: tuple[str, ...], count: int) -> Tensor | None:
    """An even sample of the pictures, as the model takes them; a picture that cannot be read is left out, and said."""
    import torch

    from vitrail.errors import DataError
    from vitrail.explain.explain import name_of
    from vitrail.images.listing import list_inputs
    from vitrail.images.loader import batches
    from vitrail.images.transforms import normalise

    if not data:
        return None
    items = list_inputs(data).items
    chosen = items[:: max(1, len(items) // count)][:count]
    found = list(batches(chosen, model.preprocess, batch_size=32))
    for file in (file for batch in found for file in batch.files):
        if file.error:
            click.echo(f"left out: {name_of(file)}: {file.error.row}", err=True)
    images = torch.cat([normalise(batch.pixels, model.preprocess) for batch in found])
    if not len(images):
        raise DataError(f"None of {len(chosen)} files could be read.", "At least 1 picture.", "")
    return images
