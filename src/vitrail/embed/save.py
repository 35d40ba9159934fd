"""Features to a file, some rows at a time: .npy with a table beside it, .npz, or .parquet.

features.npy        pictures x dim; features.csv has a row for each, in the same order
features.npz        the same as arrays: features, path, status, error, width, height, duplicate, duplicate_of, and the
                    neighbours and similarity of every picture where they were asked for
features.parquet    the table, with the features as a column
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from vitrail.bulk import job, table
from vitrail.checkpoint.atomic import replacing
from vitrail.embed.embedding import Embedded, Neighbour, columns, schema
from vitrail.embed.stored import Stored
from vitrail.engines.base import Numbers
from vitrail.errors import UsageError
from vitrail.images.extras import extra

SUFFIXES = (".npy", ".npz", ".parquet")
BLOCK = 256  # rows of features in memory at a time: a patch grid takes a megabyte
Rows = Sequence[Embedded]


def table_of(out: Path) -> Path:
    """The file with the names of the rows: the result itself, or for .npy the table beside it."""
    return out.with_suffix(".csv") if out.suffix.lower() == ".npy" else out


def refuse_taken(out: Path) -> None:
    """The table beside a .npy is as little to be overwritten as the .npy; one that a kill left there is ours."""
    beside = table_of(out)
    if beside.exists() and not job.folder_of(out).exists():
        raise UsageError(f"{beside} exists.", f"A name for the table beside {out}.", "Choose another --out.")


def save(out: Path, rows: Rows, values: Stored, neighbours: bool) -> None:
    """Everything there is to know about so many pictures, whole or not there."""
    writer = {".npy": save_npy, ".npz": save_npz, ".parquet": save_parquet}[out.suffix.lower()]
    writer(out, rows, values, neighbours)


def save_npy(out: Path, rows: Rows, values: Stored, neighbours: bool) -> None:
    """The table first: while there is no .npy, the job is not done."""
    table.write(table_of(out), (msgspec.json.encode(row) for row in rows), columns(neighbours))
    with replacing(out) as file:
        write_array(file, values)


def save_npz(out: Path, rows: Rows, values: Stored, neighbours: bool) -> None:
    """Arrays by name, none of which needs a pickle."""
    with replacing(out) as file, zipfile.ZipFile(file, "w") as archive:  # stored: floats do not compress
        with archive.open("features.npy", "w", force_zip64=True) as member:
            write_array(member, values)  # type: ignore[arg-type]
        for name, array in arrays(rows, neighbours).items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                npy.write_array(member, array, allow_pickle=False)


def write_array(file: BinaryIO, values: Stored) -> None:
    """All features as one array."""
    header = {"descr": npy.dtype_to_descr(np.dtype("<f4")), "fortran_order": False, "shape": values.shape}
    npy.write_array_header_2_0(file, header)
    file.writelines(some.data for some in blocks(values))


def blocks(values: Stored) -> Iterator[Numbers]:
    """All features in order, some rows at a time."""
    for start in range(0, len(values), BLOCK):
        yield values[start : start + BLOCK]


def arrays(rows: Rows, neighbours: bool) -> dict[str, NDArray[Any]]:
    """The table by column: text is empty and numbers are -1 (a similarity NaN) where there is nothing."""
    place = {row.path: number for number, row in enumerate(rows)}
    found: dict[str, NDArray[Any]] = {
        name: np.array([getattr(row, name) or "" for row in rows], np.str_)
        for name in ("path", "status", "error", "duplicate")
    }
    found |= {name: np.array([getattr(row, name) or -1 for row in rows], np.int32) for name in ("width", "height")}
    found["duplicate_of"] = np.array([place.get(row.duplicate_of or "", -1) for row in rows], np.int64)
    if neighbours:
        near = [row.neighbours or () for row in rows]
        pad = [Neighbour(path="", similarity=float("nan"))] * max(map(len, near))
        full = [(*some, *pad)[: len(pad)] for some in near]
        found["neighbours"] = np.array([[place.get(one.path, -1) for one in some] for some in full], np.int64)
        found["similarity"] = np.array([[one.similarity for one in some] for some in full], np.float32)
    return found


def save_parquet(out: Path, rows: Rows, values: Stored, neighbours: bool) -> None:
    """A row group per block."""
    pyarrow, parquet = extra("pyarrow", "Parquet files"), extra("pyarrow.parquet", "Parquet files")
    kind = schema(pyarrow, neighbours, values.shape[1:])
    with replacing(out) as file, parquet.ParquetWriter(file, kind) as writer:
        for start, some in zip(range(0, len(values), BLOCK), blocks(values), strict=True):
            known = [msgspec.to_builtins(row) for row in rows[start : start + BLOCK]]
            plain = pyarrow.Table.from_pylist(known, pyarrow.schema(list(kind)[:-1]))
            flat = pyarrow.FixedSizeListArray.from_arrays(some.reshape(-1), values.width)
            writer.write_table(plain.append_column(kind.field("feature"), flat))


def errors_in(out: Path) -> Iterator[str | None]:
    """The error of every row of a finished result."""
    if out.suffix.lower() != ".npz":
        yield from table.errors_in(table_of(out))
        return
    try:
        with np.load(out) as found:
            yield from (str(error) or None for error in found["error"])
    except (KeyError, ValueError, OSError, zipfile.BadZipFile) as error:
        raise table.not_ours(out, error) from None
