"""Lists of pictures in a table: `path`, `label` and `split` columns of a CSV or Parquet file."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitrail.errors import DataError, did_you_mean
from vitrail.images.extras import extra

SUFFIXES = (".csv", ".parquet")
COLUMNS = ("path", "label", "split")


@dataclass(frozen=True, slots=True)
class Row:
    """One picture of a manifest; `label` and `split` are empty where the table has no such column."""

    path: str
    label: str
    split: str
    line: int


def read(path: Path, required: tuple[str, ...] = ("path",)) -> list[Row]:
    """The rows of a manifest. A relative path is relative to the folder of the manifest."""
    lines = _parquet_rows(path, required) if path.suffix.lower() == ".parquet" else _csv_rows(path, required)
    return [_row(path, number, values, required) for number, values in lines]


def _row(manifest: Path, number: int, values: dict[str, Any], required: tuple[str, ...]) -> Row:
    cells = {name: "" if values.get(name) is None else str(values[name]) for name in COLUMNS}
    if missing := [name for name in required if not cells[name]]:
        raise DataError(
            f"{manifest}, row {number}: no {missing[0]}.",
            "Every row names a picture" + (" and its label." if "label" in required else "."),
            "Fill the cell or remove the row.",
        )
    beside = os.path.dirname(manifest)  # noqa: PTH120 (a Path would put ./ in front of every name)
    return Row(os.path.join(beside, cells["path"]), cells["label"], cells["split"], number)  # noqa: PTH118


def _csv_rows(path: Path, required: tuple[str, ...]) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:  # Excel begins a file with a byte order mark
            table = csv.DictReader(file)
            names = [name.strip() for name in table.fieldnames or ()]
            _check_columns(path, names, required)
            table.fieldnames = names
            for values in table:
                yield table.line_num, values
    except (csv.Error, UnicodeDecodeError, OSError) as error:
        raise DataError(f"{path} cannot be read ({error}).", "A CSV file in UTF-8 with a header line.") from None


def _parquet_rows(path: Path, required: tuple[str, ...]) -> Iterator[tuple[int, dict[str, Any]]]:
    pyarrow = extra("pyarrow", "Parquet files")
    parquet = extra("pyarrow.parquet", "Parquet files")
    try:
        with parquet.ParquetFile(path) as table:
            names = table.schema_arrow.names
            _check_columns(path, names, required)
            number = 0
            for batch in table.iter_batches(columns=[name for name in COLUMNS if name in names]):
                for values in batch.to_pylist():
                    number += 1
                    yield number, values
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path} cannot be read ({error}).", "A Parquet file.") from None


def _check_columns(path: Path, names: list[str], required: tuple[str, ...]) -> None:
    for name in required:
        if name not in names:
            raise DataError(
                f"{path} has no column {name!r}; its columns are {', '.join(map(repr, names)) or 'none'}.",
                f"A header line with {', '.join(required)}.",
                did_you_mean(name, names) if names else "Write the header as the first line.",
            )
