"""A sample of the user's pictures, as a model takes them, for commands that look at many pictures at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from vitrail.errors import DataError

if TYPE_CHECKING:
    from torch import Tensor

    from vitrail.model.vit import VisionTransformer


def even_sample(items: Sequence[Any], count: int) -> list[Any]:
    """At most `count` of them, evenly spread."""
    return list(items[:: max(1, -(-len(items) // count))])


def tensors(model: VisionTransformer, items: Sequence[Any], least: int) -> tuple[Tensor, list[int]]:
    """The pictures that can be read, normalised, and their places; what cannot be read is left out, and said."""
    import torch

    from vitrail.images.loader import batches
    from vitrail.images.transforms import normalise

    found = list(batches(items, model.preprocess, batch_size=32))
    for file in (file for batch in found for file in batch.files):
        if file.error:
            click.echo(f"left out: {file.source!s}: {file.error.row}", err=True)
    good = [file.index for batch in found for file in batch.good]
    if len(good) < least:
        raise DataError(f"{len(good)} of {len(items)} files could be read.", f"At least {least} pictures.", "")
    return torch.cat([normalise(batch.pixels, model.preprocess) for batch in found]), good
