"""DATA to labelled pictures: class folders, split folders, manifests and tar shards all become one Dataset.

A class is known by its name. Names sort by code point and are kept exactly as they are written (labels.py).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vitrail.errors import DataError
from vitrail.images import manifest, shards
from vitrail.images.labels import check_class_names
from vitrail.images.listing import Item
from vitrail.images.shards import SPLITS
from vitrail.images.walk import Identity, expand, identity, skipped_kind, walk

WHOLE = "all"  # the split of data that has none
LAYOUTS = "root/<class>/img.*, root/{train,val,test}/<class>/img.*, a CSV or Parquet manifest, or .tar shards."


@dataclass(frozen=True, slots=True)
class Sample:
    """A picture and the number of its class."""

    item: Item
    label: int


@dataclass(frozen=True)
class Dataset:
    """Labelled pictures by split; `skipped` counts the files that are none, by kind."""

    classes: tuple[str, ...]
    splits: dict[str, tuple[Sample, ...]]
    skipped: dict[str, int]

    def counts(self) -> dict[str, dict[str, int]]:
        """Pictures per class and split."""
        counted = {split: Counter(sample.label for sample in samples) for split, samples in self.splits.items()}
        return {
            name: {split: counted[split][label] for split in self.splits} for label, name in enumerate(self.classes)
        }


Labelled = tuple[str, str, Item]  # split, class name, picture


def read_data(data: str | os.PathLike[str]) -> Dataset:
    """Every labelled picture of a folder, a manifest, a tar or a pattern of tars."""
    path = Path(data)
    skipped: Counter[str] = Counter()
    try:
        return _dataset(path, _labelled(path, skipped), skipped)
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error}).", LAYOUTS, "Check its permissions.") from None


def _labelled(path: Path, skipped: Counter[str]) -> Iterable[Labelled]:
    if path.is_dir():
        tars = sorted(path.glob("*.tar"))
        return _shards(tars, skipped) if tars else _folders(path, skipped)
    if path.suffix.lower() in manifest.SUFFIXES and path.is_file():
        return _manifest(path)
    tars = [Path(name) for name in expand(os.fspath(path)) if Path(name).is_file()]
    if tars and path.suffix.lower() == shards.SUFFIX:
        return _shards(tars, skipped)
    raise DataError(
        f"{path} is {'neither a folder, nor a manifest, nor a tar file' if path.exists() else 'not there'}.",
        LAYOUTS,
        "Check the path.",
    )


def _dataset(path: Path, labelled: Iterable[Labelled], skipped: Counter[str]) -> Dataset:
    """Numbers for names; refused where there is nothing to learn from."""
    rows = list(labelled)
    classes = tuple(sorted({name for _, name, _ in rows}))
    if not classes:
        raise DataError(f"{path} has no labelled pictures.", LAYOUTS, "Check the path.")
    check_class_names(classes)
    numbers = {name: number for number, name in enumerate(classes)}
    splits: dict[str, list[Sample]] = {}
    for split, name, item in rows:
        splits.setdefault(split, []).append(Sample(item, numbers[name]))
    _check_splits(path, classes, splits)
    ordered = {split: tuple(splits[split]) for split in (*SPLITS, WHOLE) if split in splits}
    return Dataset(classes, ordered, dict(+skipped))  # +: without the kinds that never occurred


def _check_splits(path: Path, classes: Sequence[str], splits: dict[str, list[Sample]]) -> None:
    if WHOLE in splits and len(splits) > 1:
        first = splits[WHOLE][0].item
        raise DataError(f"{path}: {first} is in no split, others are.", "A split for all pictures, or for none.", "")
    learnt = {sample.label for sample in splits.get("train", ())}
    for split in ("val", "test") if learnt else ():
        if unseen := sorted({sample.label for sample in splits.get(split, ())} - learnt):
            raise DataError(
                f"{path}: the class {classes[unseen[0]]!r} is in {split} and not in train.",
                "Every class has pictures to learn from.",
                "Add some to train, or remove the class.",
            )


def _folders(root: Path, skipped: Counter[str]) -> Iterable[Labelled]:
    folders = _subfolders(root, skipped)
    parts = [(WHOLE, root, folders)]
    if folders and all(folder.name in SPLITS for folder in folders) and any(_subfolders(f, Counter()) for f in folders):
        parts = [(folder.name, folder, _subfolders(folder, skipped)) for folder in folders]
    # A link back into the data would give the pictures of one class, or of one split, to another.
    own = {identity(folder) for folder in (root, *folders, *(one for *_, classes in parts for one in classes))}
    for split, parent, classes in parts:
        yield from _classes(parent, split, classes, skipped, own)


def _classes(
    root: Path, split: str, folders: Sequence[Path], skipped: Counter[str], own: Collection[Identity]
) -> Iterable[Labelled]:
    if len(folders) == 1 and _has_only_folders(folders[0]):
        raise DataError(
            f"{root} has one folder, {folders[0].name}, and in it are only folders.", LAYOUTS, f"Give {folders[0]}."
        )
    for folder in folders:
        files = walk(os.fspath(folder), skipped, own)
        if not files:
            raise DataError(
                f"The class folder {folder} is empty.",
                "At least one picture per class.",
                "Add pictures, or remove the folder.",
            )
        yield from ((split, folder.name, file) for file in files)


def _subfolders(root: Path, skipped: Counter[str]) -> list[Path]:
    """The folders in a folder, by name; everything else in it is counted."""
    folders = []
    for entry in root.iterdir():
        if kind := skipped_kind(entry.name):
            skipped[kind] += 1
        elif entry.is_dir():
            folders.append(entry)
        else:
            skipped["outside a class folder"] += 1
    return sorted(folders, key=lambda folder: folder.name)


def _has_only_folders(folder: Path) -> bool:
    others: Counter[str] = Counter()
    return bool(_subfolders(folder, others)) and not others["outside a class folder"]


def _manifest(path: Path) -> Iterable[Labelled]:
    for row in manifest.read(path, required=("path", "label")):
        if row.split and row.split not in SPLITS:
            raise DataError(
                f"{path}, row {row.line}: the split is {row.split!r}.",
                f"One of {', '.join(SPLITS)}, or empty in every row.",
                "Correct the cell.",
            )
        yield row.split or WHOLE, row.label, row.path


def _shards(paths: Sequence[Path], skipped: Counter[str]) -> Iterable[Labelled]:
    for path in paths:
        of_file = next((split for split in SPLITS if path.name.startswith(tuple(split + end for end in "-_."))), WHOLE)
        for folders, label, member in shards.labelled(path, skipped):
            inside = folders[0] if len(folders) > 1 and folders[0] in SPLITS else None
            if label is None and not folders:
                skipped["outside a class folder"] += 1
            else:
                yield inside or of_file, label or folders[1 if inside else 0], member
