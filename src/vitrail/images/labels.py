"""Class names: kept exactly as they are written, compared with a model's labels by name and never by position."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from unicodedata import normalize

from vitrail.errors import DataError, did_you_mean


def match_labels(
    classes: Sequence[str], labels: Sequence[str], *, remap: bool | Mapping[str, str] = False
) -> list[int | None]:
    """For each class of the data its number in the model; refused if the two do not have the same names.

    `remap=True` keeps the classes both know and gives None for the others; a mapping renames classes first.
    """
    names = [remap.get(name, name) for name in classes] if isinstance(remap, Mapping) else list(classes)
    known = _numbers(labels)
    numbers = [known.get(name, known.get(normalize("NFC", name))) for name in names]
    unknown = [name for name, number in zip(names, numbers, strict=True) if number is None]
    missing = [name for number, name in enumerate(labels) if number not in numbers]
    twice = [labels[number] for number, count in Counter(numbers).items() if number is not None and count > 1]
    if twice or len(unknown) == len(names) or (remap is not True and (unknown or missing)):
        raise _disagreement(unknown, missing, twice, labels)
    return numbers


def check_class_names(names: Sequence[str]) -> None:
    """Refuse a name that no checkpoint could store."""
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError:
            raise DataError(
                f"The class name {name!r} is not valid UTF-8.", "A name that is text.", "Rename the folder."
            ) from None


def _numbers(labels: Sequence[str]) -> dict[str, int]:
    """Number by name; by composed name too, where that is unmistakable: a Mac writes é as two code points."""
    composed = Counter(normalize("NFC", name) for name in labels)
    lenient = {normalize("NFC", name): number for number, name in enumerate(labels)}
    lenient = {name: number for name, number in lenient.items() if composed[name] == 1}
    return lenient | {name: number for number, name in enumerate(labels)}


def _disagreement(unknown: list[str], missing: list[str], twice: list[str], labels: Sequence[str]) -> DataError:
    parts = {"only in the data": unknown, "only in the model": missing, "meant by two classes of the data": twice}
    found = "; ".join(f"{where}: {_listed(names)}" for where, names in parts.items() if names)
    return DataError(
        f"The data and the model disagree on the classes ({found}).",
        f"The model's {len(labels)} names. {did_you_mean(unknown[0], labels) if unknown and len(labels) < 50 else ''}",
        "Rename the classes, or use --remap to keep those that both know.",
    )


def _listed(names: Sequence[str], most: int = 5) -> str:
    shown = ", ".join(map(repr, names[:most]))
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown
