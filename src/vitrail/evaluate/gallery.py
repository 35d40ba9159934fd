"""Which pictures are worth looking at: the worst mistakes, and those behind each cell of the confusion matrix.

A cell has a name: "3-5" for pictures of class 3 that were taken for class 5; where a picture may have several classes,
"3-missed" and "3-extra".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np
from numpy.typing import NDArray

from vitrail.evaluate.calibration import losses
from vitrail.evaluate.metrics import Answered

WORST = 24  # mistakes shown at once
MOST = 320  # pictures inside one page: about 2 MB
TURN = 4  # pictures each cell gets before any gets more

Places = NDArray[np.int64]  # numbers of rows of scores


@dataclass(frozen=True)
class Gallery:
    """Places among the scores, the worst first everywhere."""

    worst: tuple[int, ...]
    cells: Mapping[str, tuple[int, ...]]

    def chosen(self, most: int = MOST) -> list[int]:
        """The places whose pictures a page has room for: the worst, then some of every cell in turn."""
        wrong = [places for name, places in self.cells.items() if not is_right(name)]
        right = [places for name, places in self.cells.items() if is_right(name)]
        wanted = chain(self.worst, in_turn(wrong), in_turn(right))
        return list(islice(dict.fromkeys(wanted), most))

    def only(self, names: Collection[str]) -> Gallery:
        """Without the cells that nobody can click."""
        return Gallery(self.worst, {name: places for name, places in self.cells.items() if name in names})


def gallery_of(answered: Answered) -> Gallery:
    """All cells of a model's answers, and its worst mistakes."""
    if not len(answered.scores):
        return Gallery((), {})
    loss = losses(answered.scores, answered.truth, answered.several)
    order = np.argsort(-loss, kind="stable")
    wrong = (answered.yes != answered.truth).any(axis=1)
    cells = tag_cells(answered) if answered.several else class_cells(answered, order)
    return Gallery(tuple(order[wrong[order]][:WORST].tolist()), cells)


def class_cells(answered: Answered, order: Places) -> dict[str, tuple[int, ...]]:
    """True and predicted class to places. Right answers come with the least certain first: that is the same order."""
    label, first = answered.truth.argmax(axis=1), answered.first
    cells: dict[str, list[int]] = defaultdict(list)
    for place in order.tolist():
        cells[f"{label[place]}-{first[place]}"].append(place)
    return by_size(cells)


def tag_cells(answered: Answered) -> dict[str, tuple[int, ...]]:
    """Each class to the pictures it was missed on, and those it was wrongly said of; the surest mistakes first."""
    yes, cells = answered.yes, {}
    for number in range(len(answered.labels)):
        said, there = yes[:, number], answered.truth[:, number]
        for kind, wrong in (("missed", there & ~said), ("extra", said & ~there)):
            places = np.flatnonzero(wrong)
            sureness = np.abs(answered.scores[places, number])
            cells[f"{number}-{kind}"] = places[np.argsort(-sureness, kind="stable")].tolist()
    return by_size({name: places for name, places in cells.items() if places})


def by_size(cells: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, ...]]:
    """The fullest cells first."""
    return {name: tuple(cells[name]) for name in sorted(cells, key=lambda name: -len(cells[name]))}


def is_right(name: str) -> bool:
    """Whether the pictures of a cell were answered rightly."""
    true, _, said = name.partition("-")
    return true == said


def in_turn(lists: Sequence[Sequence[int]]) -> Iterator[int]:
    """Some of each list, then some more of each."""
    for start in range(0, max(map(len, lists), default=0), TURN):
        for places in lists:
            yield from places[start : start + TURN]
