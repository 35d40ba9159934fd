"""Explanations to files: PNG and SVG per view, NPZ and JSON per picture, one HTML page per picture."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from vitrail.checkpoint.atomic import replacing
from vitrail.errors import UsageError, did_you_mean
from vitrail.explain.draw import drawn, png, svg
from vitrail.explain.explain import Explained
from vitrail.explain.faithfulness import Scores
from vitrail.explain.page import page

FORMATS = ("png", "svg", "npz", "json", "html")
SCHEMA_VERSION = 1


def save(explained: Explained, folder: Path, stem: str, formats: Sequence[str] = ("png", "json", "html")) -> list[Path]:
    """Write one picture's views as folder/stem*.*; the paths written."""
    check_formats(formats)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, data in files(explained, stem, formats).items():
        with replacing(folder / name) as file:
            file.write(data)
        written.append(folder / name)
    return written


def check_formats(formats: Sequence[str]) -> None:
    """Refuse a format that nobody writes, before anything is computed."""
    for wanted in formats:
        if wanted not in FORMATS:
            raise UsageError(f"There is no format {wanted!r}.", did_you_mean(wanted, FORMATS), "")


def files(explained: Explained, stem: str, formats: Sequence[str]) -> dict[str, bytes]:
    """File names and their bytes."""
    found: dict[str, bytes] = {}
    for view in explained.views.values():
        if view.kind != "blocks" and "png" in formats:
            found[f"{stem}.{view.method}.png"] = png(drawn(view, explained.picture))
        if view.kind != "blocks" and "svg" in formats:
            found[f"{stem}.{view.method}.svg"] = svg(
                view, explained.picture, f"{explained.name}: {view.method}"
            ).encode()
    if "npz" in formats:
        found[f"{stem}.npz"] = npz(explained)
    if "json" in formats:
        found[f"{stem}.json"] = msgspec.json.format(msgspec.json.encode(as_data(explained)), indent=1)
    if "html" in formats:
        found[f"{stem}.html"] = page(explained).encode()
    return found


def npz(explained: Explained) -> bytes:
    """Every view's values and the picture, by name."""
    buffer = io.BytesIO()
    arrays = {view.method: view.values for view in explained.views.values()}
    np.savez_compressed(buffer, picture=explained.picture, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def as_data(explained: Explained, values: bool = True) -> dict[str, Any]:
    """One picture's explanation as plain numbers and words, for JSON."""
    return {
        "schema_version": SCHEMA_VERSION,
        "name": explained.name,
        "size": list(explained.picture.shape[:2]),
        "grid": list(explained.grid),
        "target": explained.target,
        "label": explained.label,
        "confidence": round(explained.confidence, 6),
        "top": [{"label": label, "probability": round(chance, 6)} for label, chance in explained.top],
        **({"random_order": _scores_data(explained.chance)} if explained.chance else {}),
        "views": {name: _view_data(view, values) for name, view in explained.views.items()},
    }


def _view_data(view: Any, values: bool) -> dict[str, Any]:
    data: dict[str, Any] = {"kind": view.kind, "shape": list(view.values.shape)}
    if values:
        data["values"] = np.round(view.values.astype(np.float64), 7).tolist()
    if view.scores:
        data["scores"] = _scores_data(view.scores)
    if view.agreement is not None:
        data["agreement_with_shuffled"] = round(view.agreement, 4)
    return data | ({"notes": view.notes} if view.notes else {})


def _scores_data(scores: Scores) -> dict[str, float]:
    return {name: round(getattr(scores, name), 6) for name in ("deletion", "insertion", "road", "total")}
