"""The grid a position table was learned on, the picture size that belongs to it, and the tokens it covers.

A table only shows its number of rows. Rows minus the tokens it covers must be the patches of some grid: the one a
config beside the file states, the one the caller names, else a square.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from vitrail.checkpoint import shapes
from vitrail.checkpoint.rules import Table
from vitrail.checkpoint.understanding import Understanding
from vitrail.config import Pair, ResNetStem, ViTConfig, build
from vitrail.errors import CheckpointError, ConfigError

TABLE = "tokens.position.table"


@dataclass(frozen=True)
class Rows:
    """The rows of a table, and how many of them each way of covering tokens takes, likeliest first."""

    count: int
    taken: Mapping[str, int]

    def covers(self, grid: Pair | None) -> str | None:
        """The way of covering that leaves just this grid."""
        return next(
            (word for word, rows in self.taken.items() if grid and self.count - rows == grid[0] * grid[1]), None
        )

    def squares(self) -> list[tuple[str, Pair]]:
        """Every way of covering that leaves a square grid."""
        return [(word, grid) for word, rows in self.taken.items() if (grid := shapes.square(self.count - rows))]


def settle(
    found: Understanding,
    by: Table,
    state: Mapping[str, Tensor],
    stated: Mapping[str, Any],
    asked: Mapping[str, Any],
) -> None:
    """Add image_size, position_grid and position_covers to what is known."""
    table, fields = state.get(TABLE), found.fields
    if table is None:
        _settle_without_table(found, by, stated, asked)
        return
    if table.ndim != 3 or table.shape[0] != 1:
        raise CheckpointError(f"The position table has the shape {list(table.shape)}.", "1 x rows x width.", "")
    said = {**stated, **asked}.get("position_covers")
    rows = Rows(table.shape[1], {word: taken(fields, word) for word in ([said] if said else by.covers)})
    given = stated.get("position_grid") or asked.get("position_grid")
    if given or stated.get("image_size"):
        _crop_where_stated(found, stated.get("image_size"))
        _settle_as_said(found, rows, stated.get("image_size") or asked.get("image_size"), given)
    elif (size := asked.get("image_size")) and (word := rows.covers(_grid(found, size))):
        if _grid(found, size) not in [grid for _, grid in rows.squares()]:
            grid = _grid(found, size)
            found.assumptions.append(f"the position table is read as {grid[0]} x {grid[1]} patches, as asked for")
        fields |= {"image_size": size, "position_covers": word}
    else:
        _settle_as_square(found, rows)
    if taken(fields, fields["position_covers"]) == taken(fields, "class"):
        fields["position_covers"] = "class"  # the default word where several mean the same


def _settle_as_said(found: Understanding, rows: Rows, size: Pair | None, given: Pair | None) -> None:
    grid = given or _grid(found, size or (0, 0))
    word = rows.covers(grid)
    if word is None:
        raise CheckpointError(
            f"The position table has {rows.count} rows; what is said beside it means {grid[0]} x {grid[1]} patches.",
            f"{grid[0] * grid[1]} rows, and one for each of up to {taken(found.fields, 'all')} other tokens.",
            "Give the picture size the table was made for: image_size=(rows, columns).",
        )
    size = size or _size(found, grid)
    found.fields |= {"image_size": size, "position_covers": word}
    found.fields["position_grid"] = None if _grid(found, size) == grid else grid


def _settle_as_square(found: Understanding, rows: Rows) -> None:
    squares, first = rows.squares(), next(iter(rows.taken))
    if not squares:
        patches = " or ".join(str(rows.count - taken) for taken in dict.fromkeys(rows.taken.values()))
        raise CheckpointError(
            f"The position table has {rows.count} rows, which is no square grid of patches.",
            f"{patches} patches, in rows and columns that only its author knows.",
            "Say the picture size: vitrail.load(path, image_size=(rows, columns)) or --set image_size=….",
        )
    word, grid = squares[0]
    found.assume("image_size", _size(found, grid), f"the position table has {rows.count} rows: a square grid")
    found.fields["position_covers"] = word
    if rows.taken[word] != rows.taken[first]:
        found.assumptions.append(f"position_covers={word}: only so is the grid square")


def _settle_without_table(found: Understanding, by: Table, stated: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """A model that needs no table; one that does stays as it is, and the table will be missed."""
    if by.may_compute_positions and "position" not in {**stated, **asked, **found.fields}:
        found.assume("position", "sincos", "there is no position table")
    _crop_where_stated(found, stated.get("image_size"))
    size = asked.get("image_size") or stated.get("image_size")
    if size:
        found.fields["image_size"] = size
    else:
        found.assume("image_size", _size(found, (14, 14)), "without a position table any size would do")


def taken(fields: Mapping[str, Any], word: str) -> int:
    """Rows of the table that belong to tokens before the patches."""
    first: int = fields["class_token"] + fields["distillation_token"]
    rows: int = {"all": first + fields["num_register_tokens"], "class": first, "patches": 0}[word]
    return rows


def _crop_where_stated(found: Understanding, size: Pair | None) -> None:
    """A stated picture that patches do not divide is cropped, as every library but ours does without a word."""
    if size is None or "ragged_edge" in found.fields:
        return
    try:
        _grid(found, size)
    except ConfigError:
        found.assume("ragged_edge", "crop", f"patches do not divide {size[0]} x {size[1]} pixels")


def _grid(found: Understanding, size: Pair) -> Pair:
    return _measure(found.fields).grid_for(size)


def _size(found: Understanding, grid: Pair) -> Pair:
    stride = _measure(found.fields).stride
    return grid[0] * stride[0], grid[1] * stride[1]


def _measure(fields: Mapping[str, Any]) -> ViTConfig:
    """Enough of the config to compute grids with, for a picture that surely divides."""
    stem: ResNetStem | None = fields["resnet"]
    stride = 4 * 2 ** max(len(stem.layers) - 1, 0) if stem else 1
    rows, cols = fields["patch_size"]
    known = {"patch_size": (rows, cols), "resnet": stem, "image_size": (rows * stride * 4, cols * stride * 4)}
    return build(ViTConfig, known | {"ragged_edge": fields.get("ragged_edge", "refuse")})
