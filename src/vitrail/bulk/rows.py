"""A row for every file: what any verb says of a picture, whatever else it finds out."""

from __future__ import annotations

from typing import Any, Literal

from vitrail.config import Frozen
from vitrail.images.loader import File
from vitrail.images.reading import BadPicture, shown
from vitrail.images.shards import Member


class Row(Frozen, frozen=True, kw_only=True):
    """One file. Where it could not be read, `error` begins with the reason (images/reading.py)."""

    path: str
    status: Literal["ok", "error"]
    error: str | None = None
    width: int | None = None
    height: int | None = None
    notes: tuple[str, ...] = ()  # first_frame, scaled, truncated, profile_ignored


def facts(file: File) -> dict[str, Any]:
    """What the loader says of a file, as the fields of a row."""
    return {
        "path": name_of(file),
        "status": "error" if file.error else "ok",
        "error": file.error.row if file.error else None,
        "width": file.width,
        "height": file.height,
        "notes": file.notes,
    }


def check_readable(row: Row) -> None:
    """Raise what kept the only picture from being read: whoever asks for one wants an answer or an exception."""
    if row.error:
        reason, _, found = row.error.partition(": ")
        raise BadPicture(reason, f"{row.path}: {found}", "A picture.")


def name_of(file: File) -> str:
    """A path as every table can hold it; a picture that is no file is called by its place in the list."""
    return item_name(file.source) if is_file(file.source) else f"picture {file.index}"


def item_name(item: Any) -> str:
    """The text a file of a list goes by in tables."""
    return shown(str(item))


def is_file(source: object) -> bool:
    """Whether a picture was given as a path, not as bytes, a Pillow picture or an array."""
    return isinstance(source, str | Member) or hasattr(source, "__fspath__")
