"""The paper's figures for one checkpoint, or for two side by side."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vitrail.checkpoint.atomic import replacing
from vitrail.errors import UsageError
from vitrail.explain import plots
from vitrail.explain.attention import rollout
from vitrail.explain.explain import seen_pictures
from vitrail.explain.paper import Distances, Filters, filters, mean_distances, position_similarity
from vitrail.model.vit import VisionTransformer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("png", "svg", "pdf")
Progress = Callable[[int, int], None]  # so many of so many pictures are measured
ENOUGH = 128  # images for a mean attention distance


@dataclass(frozen=True)
class Numbers:
    """One checkpoint's numbers. Distances and examples (rollout maps) are there where images were given."""

    title: str
    filters: Filters
    positions: Tensor | None
    distances: Distances | None
    examples: Tensor | None


@dataclass(frozen=True)
class Figures:
    """Numbers of one or two checkpoints, and the pictures of the examples."""

    numbers: list[Numbers]
    pictures: list[NDArray[np.uint8]]

    def drawn(self) -> dict[str, Figure]:
        """Every figure that the numbers allow, by name."""
        titles = [one.title for one in self.numbers]
        found = {
            "filters": plots.filter_figure(titles, [one.filters for one in self.numbers]),
            "positions": plots.position_figure(
                titles, [None if one.positions is None else one.positions.numpy() for one in self.numbers]
            ),
        }
        distances = [one.distances for one in self.numbers if one.distances]
        if distances:
            found["distances"] = plots.distance_figure(titles, distances)
        maps = [list(one.examples.numpy()) for one in self.numbers if one.examples is not None]
        if maps:
            found["examples"] = plots.example_figure(titles, self.pictures, maps)
        return found

    def save(self, folder: Path, formats: Sequence[str] = ("png", "svg")) -> list[Path]:
        """Write every figure, and the numbers as figures.npz and figures.json."""
        check_formats(formats)
        folder.mkdir(parents=True, exist_ok=True)
        contents = {"figures.npz": self.npz(), "figures.json": msgspec.json.format(msgspec.json.encode(self.data()))}
        for name, figure in self.drawn().items():
            contents |= {f"{name}.{kind}": rendered(figure, kind) for kind in formats}
        for name, data in contents.items():
            with replacing(folder / name) as file:
                file.write(data)
        return [folder / name for name in contents]

    def npz(self) -> bytes:
        """Every array, the second checkpoint's with "against." before the name."""
        arrays: dict[str, Any] = {}
        for prefix, one in zip(("", "against."), self.numbers, strict=False):
            arrays[f"{prefix}filters"] = one.filters.components.numpy()
            if one.positions is not None:
                arrays[f"{prefix}positions"] = one.positions.numpy()
            if one.distances is not None:
                arrays |= {
                    f"{prefix}distance.{end}": getattr(one.distances, end).numpy() for end in ("mean", "low", "high")
                }
            if one.examples is not None:
                arrays[f"{prefix}examples"] = one.examples.numpy()
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **arrays)
        return buffer.getvalue()

    def data(self) -> dict[str, Any]:
        """The distances and the variance explained, for JSON (a pruned head is null)."""
        return {"schema_version": 1, "checkpoints": [_data(one) for one in self.numbers]}


def check_formats(formats: Sequence[str]) -> None:
    """Refuse what a figure cannot be saved as."""
    for wanted in formats:
        if wanted not in FORMATS:
            raise UsageError(f"There is no figure format {wanted!r}.", f"One of {', '.join(FORMATS)}.", "")


def figures(
    model: VisionTransformer,
    images: Tensor | None = None,
    *,
    against: VisionTransformer | None = None,
    against_images: Tensor | None = None,
    titles: Sequence[str] = ("model", "against"),
    examples: int = 6,
    batch_size: int = 8,
    progress: Progress | None = None,
) -> Figures:
    """Filters, position similarity, attention distance and examples, from normalised images (None: the first two).

    `against_images` are the same pictures as the second checkpoint takes them, where it takes them differently.
    `progress` is told how many of how many pictures are measured, for one checkpoint after the other.
    """
    if images is not None and not len(images):
        raise UsageError("There are no images.", f"At least 1; {ENOUGH} for distances that can be compared.", "")
    numbers = [measured(titles[0], model, images, examples, batch_size, progress)]
    if against is not None:
        theirs = images if against_images is None else against_images
        numbers.append(measured(titles[1], against, theirs, examples, batch_size, progress))
    pictures = [] if images is None else seen_pictures(images[:examples], model.preprocess)
    return Figures(numbers, pictures)


def measured(
    title: str,
    model: VisionTransformer,
    images: Tensor | None,
    examples: int,
    batch_size: int,
    progress: Progress | None,
) -> Numbers:
    """One checkpoint's numbers."""
    distances = None if images is None else mean_distances(model, images, batch_size, progress)
    maps = (
        None
        if images is None
        else torch.cat([rollout(model, some) for some in torch.split(images[:examples], batch_size)])
    )
    return Numbers(title, filters(model), position_similarity(model), distances, maps)


def rendered(figure: Figure, kind: str) -> bytes:
    """A figure as a file. Without a date and random names, so that the same numbers give the same bytes."""
    from matplotlib import rc_context

    buffer = io.BytesIO()
    with rc_context({"svg.hashsalt": "vitrail"}):
        figure.savefig(buffer, format=kind, metadata={"Date": None} if kind == "svg" else None)
    return buffer.getvalue()


def _data(one: Numbers) -> dict[str, Any]:
    data: dict[str, Any] = {
        "title": one.title,
        "filters": {"of": one.filters.of, "variance_explained": one.filters.explained.tolist()},
    }
    if one.distances:
        data["mean_attention_distance"] = {
            "images": one.distances.images,
            **{end: getattr(one.distances, end).tolist() for end in ("mean", "low", "high")},
        }
    return data
