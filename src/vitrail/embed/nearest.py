"""The nearest of every row among all rows, by cosine: exact, block against block, so that memory does not grow."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vitrail.embed.stored import Stored
from vitrail.engines.base import Numbers

Places = NDArray[np.int64]
BLOCK = 2048  # rows compared with as many at a time: 16 MB of similarities
NOWHERE = -1  # where there are fewer others than were asked for


def nearest(values: Numbers | Stored, count: int, block: int = BLOCK) -> tuple[Places, Numbers]:
    """The places of the `count` most similar other rows, most similar first, and their cosines.

    Equal ones come in the order of their places. A row that is not finite is near to nothing.
    """
    places = np.full((len(values), count), NOWHERE, np.int64)
    cosines = np.full((len(values), count), -np.inf, np.float32)
    for start in range(0, len(values), block):
        ours = unit(values[start : start + block])
        for other in range(0, len(values), block):
            found = ours @ unit(values[other : other + block]).T
            forget(found, start, other)
            better = np.flatnonzero(found.max(axis=1) > cosines[start : start + block, -1])  # fewer and fewer
            rows = start + better
            places[rows], cosines[rows] = merged(places[rows], cosines[rows], found[better], other)
    cosines[places == NOWHERE] = np.nan
    return places, cosines


def unit(rows: Numbers) -> Numbers:
    """Rows of length 1; NaN where a row has none."""
    rows = np.asarray(rows, np.float32).reshape(len(rows), -1)
    lengths: Numbers = np.linalg.norm(rows, axis=1, keepdims=True)
    lengths[lengths == 0] = np.nan
    return rows / lengths


def forget(cosines: Numbers, start: int, other: int) -> None:
    """A row is not its own neighbour, and NaN is nobody's."""
    cosines[np.isnan(cosines)] = -np.inf
    if start == other:
        np.fill_diagonal(cosines, -np.inf)


def merged(places: Places, cosines: Numbers, found: Numbers, other: int) -> tuple[Places, Numbers]:
    """The best of those known so far and those of another block, whose first row is at `other`."""
    count = places.shape[1]
    some = best(found, min(count, found.shape[1]))
    places = np.hstack([places, some + other])
    cosines = np.hstack([cosines, np.take_along_axis(found, some, 1)])
    order = np.argsort(-cosines, axis=1, kind="stable")[:, :count]
    places, cosines = np.take_along_axis(places, order, 1), np.take_along_axis(cosines, order, 1)
    places[np.isneginf(cosines)] = NOWHERE
    return places, cosines


def best(found: Numbers, count: int) -> Places:
    """The places of the largest of every row, equal ones from the left."""
    last = -np.partition(-found, count - 1, axis=1)[:, count - 1 : count]  # the smallest that still counts
    above, equal = found > last, found == last
    room = count - above.sum(axis=1, keepdims=True)
    kept = above | (equal & (np.cumsum(equal, axis=1) <= room))
    return np.nonzero(kept)[1].reshape(len(found), count)
