"""The paper's figures, drawn: one matplotlib figure each, one column per checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vitrail.explain.colours import Pixels, stretched
from vitrail.explain.paper import Distances, Filters

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_TILES = 14  # grids of grids per side; larger ones are shown at evenly spaced positions
GAP = 1  # cells between tiles


def filter_figure(titles: Sequence[str], filters: Sequence[Filters]) -> Figure:
    """Principal components as colour tiles, seven in a row."""
    figure, axes = columns(len(filters), height=2.6)
    for axis, title, one in zip(axes, titles, filters, strict=True):
        axis.imshow(tiles(as_colours(one.components.numpy()), across=7), interpolation="nearest")
        shown = float(one.explained.sum())
        axis.set_title(f"{title}\n{one.of}: {len(one.components)} components, {shown:.0%} of variance", fontsize=8)
        axis.axis("off")
    return figure


def position_figure(titles: Sequence[str], similarities: Sequence[NDArray[Any] | None]) -> Figure:
    """For each position, its cosine similarity with all others, as a grid of grids."""
    figure, axes = columns(len(similarities), height=4.2)
    for axis, title, similarity in zip(axes, titles, similarities, strict=True):
        axis.set_title(f"{title}\nposition similarity", fontsize=8)
        if similarity is None:
            axis.text(0.5, 0.5, "no position table", ha="center", va="center", transform=axis.transAxes)
            axis.axis("off")
            continue
        image = axis.imshow(grid_of_grids(similarity), vmin=-1, vmax=1, cmap="viridis", interpolation="nearest")
        axis.set(xlabel="patch column", ylabel="patch row", xticks=[], yticks=[])
        figure.colorbar(image, ax=axis, shrink=0.7, label="cosine")
    return figure


def distance_figure(titles: Sequence[str], distances: Sequence[Distances]) -> Figure:
    """Mean attention distance per layer and head, with the interval over images."""
    figure, axes = columns(len(distances), height=3.2)
    highest = max(float(np.nanmax(one.mean)) for one in distances)
    for axis, title, one in zip(axes, titles, distances, strict=True):
        mean, high = one.mean.numpy(), one.high.numpy()
        layers, heads = mean.shape
        spread = (np.arange(heads) - (heads - 1) / 2) * min(0.5 / max(heads, 1), 0.06)
        for head in range(heads):
            error = np.where(np.isfinite(high[:, head]), high[:, head] - mean[:, head], 0)
            places = np.arange(layers) + spread[head]
            axis.errorbar(
                places, mean[:, head], yerr=error, fmt="o", markersize=3, linewidth=0.8, color=f"C{head % 10}"
            )
        axis.plot([0, layers - 1], [0, 0], linestyle="none")  # layers that lost all heads are on the axis too
        axis.set(xlabel="layer", ylabel="mean attention distance (pixels)", ylim=(0, highest * 1.1))
        axis.set_title(f"{title}\n{one.images} images, every head, 95% interval", fontsize=8)
    return figure


def example_figure(titles: Sequence[str], pictures: Sequence[Pixels], maps: Sequence[Sequence[NDArray[Any]]]) -> Figure:
    """Pictures, and beside each what is left of it where attention falls (figure 6 of the paper)."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.6 * (1 + len(maps)), 1.6 * len(pictures) + 0.3), layout="constrained")
    axes: Any = figure.subplots(len(pictures), 1 + len(maps), squeeze=False)
    for row, picture in enumerate(pictures):
        axes[row, 0].imshow(picture)
        for col, one in enumerate(maps):
            axes[row, 1 + col].imshow(spotlit(picture, one[row]))
    for axis, title in zip(axes[0], ["input", *titles], strict=True):
        axis.set_title(title, fontsize=8)
    for axis in axes.flat:
        axis.axis("off")
    return figure


def columns(count: int, height: float) -> tuple[Figure, list[Axes]]:
    """Axes side by side, without pyplot, which would keep every figure alive."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * count, height), layout="constrained", dpi=150)
    axes: Any = figure.subplots(1, count, squeeze=False)
    return figure, list(axes[0])


def as_colours(components: NDArray[Any]) -> NDArray[Any]:
    """Components of any number of channels as RGB: one channel is grey, of more than three the first three show."""
    channels = components.shape[-1]
    return components[..., :3] if channels >= 3 else components[..., :1].repeat(3, axis=-1)


def tiles(pictures: NDArray[Any], across: int) -> NDArray[Any]:
    """Small pictures (count x rows x cols x 3) laid out in rows, on white."""
    count, rows, cols, _ = pictures.shape
    down = -(-count // across)
    canvas = np.ones((down * (rows + GAP) - GAP, across * (cols + GAP) - GAP, 3))
    for number, picture in enumerate(pictures):
        top, left = (rows + GAP) * (number // across), (cols + GAP) * (number % across)
        canvas[top : top + rows, left : left + cols] = picture
    return canvas


def grid_of_grids(similarity: NDArray[Any]) -> NDArray[Any]:
    """rows x cols x rows x cols as one picture; between the tiles there is nothing (NaN)."""
    rows, cols = similarity.shape[:2]
    chosen = [np.unique(np.linspace(0, n - 1, min(n, MOST_TILES)).round().astype(int)) for n in (rows, cols)]
    gap = max(GAP, rows // 12, cols // 12)  # a single line between large tiles would fall between screen pixels
    canvas = np.full((len(chosen[0]) * (rows + gap) - gap, len(chosen[1]) * (cols + gap) - gap), np.nan)
    for i, row in enumerate(chosen[0]):
        for j, col in enumerate(chosen[1]):
            top, left = i * (rows + gap), j * (cols + gap)
            canvas[top : top + rows, left : left + cols] = similarity[row, col]
    return canvas


def spotlit(picture: Pixels, values: NDArray[Any]) -> Pixels:
    """The picture, as dark as the map is low."""
    size = (picture.shape[0], picture.shape[1])
    light = stretched(values, size, smooth=True)
    light = np.clip(light / max(float(np.quantile(light, 0.98)), 1e-12), 0, 1)
    shown: Pixels = np.round(picture * (0.1 + 0.9 * light[..., None])).astype(np.uint8)
    return shown
