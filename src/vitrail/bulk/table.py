"""Rows to a table: CSV, JSON lines or Parquet, whole or not there, a block of rows at a time."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import msgspec

from vitrail.checkpoint.atomic import replacing
from vitrail.errors import UsageError
from vitrail.images.extras import extra

SUFFIXES = (".csv", ".jsonl", ".parquet")
BLOCK = 4096  # rows in memory at a time
Schema: TypeAlias = Callable[[Any], Any]  # pyarrow -> the schema of the rows


def check_suffix(out: Path, known: Sequence[str] = SUFFIXES) -> None:
    """Refuse a name that does not say what is to be written; before any work is done."""
    if out.suffix.lower() not in known:
        raise UsageError(
            f"{out} ends in {out.suffix or 'nothing'!r}.",
            f"One of {', '.join(known)}.",
            "It says what to write.",
        )
    if out.suffix.lower() == ".parquet":
        extra("pyarrow", "Parquet files")


def write(out: Path, lines: Iterable[bytes], columns: Sequence[str], schema: Schema | None = None) -> None:
    """Lines of JSON to a table with these columns; Parquet wants to know their kinds."""
    writer = {".csv": as_csv, ".jsonl": as_lines, ".parquet": as_parquet}[out.suffix.lower()]
    with replacing(out) as file:
        writer(file, lines, columns, schema)


def as_lines(file: BinaryIO, lines: Iterable[bytes], _columns: Sequence[str], _schema: Schema | None) -> None:
    """As they are."""
    file.writelines(lines)


def as_csv(file: BinaryIO, lines: Iterable[bytes], columns: Sequence[str], _schema: Schema | None) -> None:
    """A cell that is a list or a record is JSON."""
    text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
    table = csv.writer(text)
    table.writerow(columns)
    for line in lines:
        row = msgspec.json.decode(line)
        table.writerow([cell(row[column]) for column in columns])
    text.flush()
    text.detach()


def as_parquet(file: BinaryIO, lines: Iterable[bytes], _columns: Sequence[str], schema: Schema | None) -> None:
    """A row group per block."""
    pyarrow, parquet = extra("pyarrow", "Parquet files"), extra("pyarrow.parquet", "Parquet files")
    assert schema
    kind, rows = schema(pyarrow), iter(lines)
    with parquet.ParquetWriter(file, kind) as writer:
        while block := [msgspec.json.decode(line) for line in islice(rows, BLOCK)]:
            writer.write_table(pyarrow.Table.from_pylist(block, kind))


def errors_in(out: Path) -> Iterator[str | None]:
    """The error of every row of a table; None for the good ones."""
    reader = {".csv": csv_errors, ".jsonl": line_errors, ".parquet": parquet_errors}[out.suffix.lower()]
    try:
        yield from reader(out)
    except (KeyError, ValueError, OSError, csv.Error) as error:  # pyarrow's errors are ValueErrors
        raise not_ours(out, error) from None


def not_ours(out: Path, error: Exception) -> UsageError:
    """A file that --resume found in place of a result."""
    return UsageError(
        f"{out} is no result of ours ({error!r}).", "One that an earlier run wrote.", "Choose another --out."
    )


def csv_errors(out: Path) -> Iterator[str | None]:
    """Of a CSV file."""
    with out.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            yield row["error"] or None


def line_errors(out: Path) -> Iterator[str | None]:
    """Of JSON lines."""
    with out.open("rb") as file:
        for line in file:
            yield msgspec.json.decode(line)["error"]


def parquet_errors(out: Path) -> Iterator[str | None]:
    """Of a Parquet file."""
    with extra("pyarrow.parquet", "Parquet files").ParquetFile(out) as table:
        for block in table.iter_batches(columns=["error"]):
            yield from block.column("error").to_pylist()


def cell(value: Any) -> Any:
    """A value as CSV can hold it."""
    return msgspec.json.encode(value).decode() if isinstance(value, list | dict) else value
