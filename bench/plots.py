"""The plots beside RESULTS.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

HERE = Path(__file__).parent
OURS, THEIRS = ("#0b5cad", "#5aa2e0"), ("#6b6b6b", "#9a9a9a", "#c2c2c2", "#b08968", "#d9b99b")


def bars(values: Mapping[str, Sequence[float]], groups: Sequence[str], unit: str) -> Figure:
    """One panel per group, one bar per contestant; ours are blue."""
    figure = Figure(figsize=(4.4 * len(groups), 0.34 * len(values) + 1.1), layout="constrained")
    axes = figure.subplots(1, len(groups), sharey=True, squeeze=False)[0]
    for place, (axis, group) in enumerate(zip(axes, groups, strict=True)):
        drawn = axis.barh(list(values), [one[place] for one in values.values()], color=list(colours(values).values()))
        axis.bar_label(drawn, fmt="{:.3g}", padding=3, fontsize=8)
        axis.set(title=group, xlabel=unit)
        axis.margins(x=0.15)
        bare(axis)
        axis.invert_yaxis() if place == 0 else None
    return figure


def curves(panels: Mapping[str, Mapping[str, tuple[Sequence[float], Sequence[float]]]], across: str, up: str) -> Figure:
    """One panel per title, one line per contestant, both axes in powers."""
    figure = Figure(figsize=(4.8 * len(panels), 3.6), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axis, (title, lines) in zip(axes, panels.items(), strict=True):
        for name, (x, y) in lines.items():
            axis.loglog(x, y, marker="o", markersize=4, label=name, color=colours(lines)[name])
        axis.set(title=title, xlabel=across, ylabel=up)
        axis.legend(fontsize=8, frameon=False)
        axis.grid(alpha=0.25)
        bare(axis)
    return figure


def colours(names: Mapping[str, object]) -> dict[str, str]:
    """Blues for us, greys and browns for everybody else, in their order."""
    ours, theirs = iter(OURS * len(names)), iter(THEIRS * len(names))
    return {name: next(ours if name.startswith("vitrail") else theirs) for name in names}


def bare(axis: Axes) -> None:
    """No frame but the axes."""
    axis.spines[["top", "right"]].set_visible(False)


def saved(figure: Figure, name: str) -> str:
    """The figure as NAME.svg beside the results, and the line that shows it there."""
    figure.savefig(HERE / f"{name}.svg", metadata={"Date": None})
    return f"![{name}]({name}.svg)"
