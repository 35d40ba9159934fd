"""A pruned model and the record of how it was found, in one folder."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from vitrail import checkpoint
from vitrail.checkpoint.atomic import replacing
from vitrail.prune.plots import curve_figure, importance_figure
from vitrail.prune.prune import Pruned

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def save(pruned: Pruned, folder: Path) -> list[Path]:
    """folder/model (a native checkpoint), prune.json, importance and curve as PNG and SVG."""
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint.save(pruned.model, folder / "model")
    contents = {"prune.json": encoded(as_data(pruned)).encode()}
    for name, figure in (("importance", importance_figure(pruned)), ("curve", curve_figure(pruned))):
        contents |= {f"{name}.{kind}": rendered(figure, kind) for kind in ("png", "svg")}
    for name, data in contents.items():
        with replacing(folder / name) as file:
            file.write(data)
    return [folder / "model", *(folder / name for name in contents)]


def as_data(pruned: Pruned) -> dict[str, Any]:
    """Everything but the model, for JSON (a head that was gone before is null)."""
    data = {name: getattr(pruned, name) for name in Pruned.__dataclass_fields__ if name not in ("model", "importance")}
    return {"schema_version": 1, "importance": pruned.importance.tolist(), **data}


def encoded(data: dict[str, Any]) -> str:
    """JSON text; NaN becomes null."""
    return msgspec.json.format(msgspec.json.encode(data), indent=1).decode()


def rendered(figure: Figure, kind: str) -> bytes:
    """A figure as a file, without a date."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, metadata={"Date": None} if kind == "svg" else None)
    return buffer.getvalue()
