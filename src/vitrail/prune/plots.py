"""What pruning found, drawn: the importance of every head, and quality against heads and speed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vitrail.prune.curve import Quality
from vitrail.prune.prune import Pruned

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def importance_figure(pruned: Pruned) -> Figure:
    """Layers x heads: darker is missed less; a cross where a head was taken out, white where it was gone before."""
    from matplotlib.figure import Figure

    scores = pruned.importance.numpy()
    figure = Figure(figsize=(1.5 + 0.35 * scores.shape[1], 1.2 + 0.3 * scores.shape[0]), layout="constrained", dpi=150)
    axis: Axes = figure.subplots()
    low, high = np.nanquantile(scores, [0.0, 0.98])  # one indispensable head would make the rest all dark
    image = axis.imshow(scores, cmap="magma", vmin=low, vmax=max(high, low + 1e-12), aspect="auto")
    for layer, heads in pruned.removed.items():
        axis.plot(heads, [layer] * len(heads), "x", color="#7fd0ff", markersize=6)
    axis.set(xlabel="head", ylabel="layer", title=f"importance by {pruned.score}; x: taken out")
    axis.set_xticks(range(0, scores.shape[1], max(1, scores.shape[1] // 8)))
    figure.colorbar(image, ax=axis)
    return figure


def curve_figure(pruned: Pruned) -> Figure:
    """Quality against heads taken out and against the speed that brought, beside random choices."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 3.4), layout="constrained", dpi=150)
    by_heads, by_speed = figure.subplots(1, 2, sharey=True)
    for points, name, style in ((pruned.curve, pruned.score, "o-"), (pruned.chance, "random", "s--")):
        quality = [100 * point.quality for point in points]
        by_heads.plot([point.heads for point in points], quality, style, markersize=4, label=name)
        low, high = ([100 * (pruned.before.quality + end) for end in ends] for ends in intervals(points))
        by_heads.fill_between([point.heads for point in points], low, high, alpha=0.15, linewidth=0)
        draw_speed(by_speed, pruned.curve, quality, style)  # as many heads cost as much time, whichever they are
    after = pruned.after
    label = "chosen" + (", recovered" if pruned.recovery else "")
    by_heads.plot(after.heads, 100 * after.quality, "*", markersize=12, color="C3", label=label)
    by_speed.plot(after.speed, 100 * after.quality, "*", markersize=12, color="C3")
    by_heads.set(xlabel="heads taken out", ylabel=f"{pruned.measure} (%)")
    by_speed.set(xlabel="times as fast as before (measured; quartiles)")
    by_heads.legend(fontsize=8)
    return figure


def intervals(points: Sequence[Quality]) -> tuple[list[float], list[float]]:
    """Both ends of the change's interval at each point."""
    return [point.change_low for point in points], [point.change_high for point in points]


def draw_speed(axis: Any, points: Any, quality: list[float], style: str) -> None:
    """Measured speeds with their quartiles."""
    speeds = np.array([[point.speed, point.speed_low, point.speed_high] for point in points])
    errors = np.abs(speeds[:, 1:] - speeds[:, :1]).T
    axis.errorbar(speeds[:, 0], quality, xerr=errors, fmt=style, markersize=4)
