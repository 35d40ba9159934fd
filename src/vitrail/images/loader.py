"""A list of files to batches of pixels: threads decode and resize ahead, results come in order, no file is lost.

Pillow lets go of the interpreter while it decodes and resizes, so threads are enough. Memory is bounded by how far
they may run ahead, not by the length of the list.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from vitrail.config import Preprocess
from vitrail.images.decode import DEFAULT, Decoding, Source
from vitrail.images.reading import BadPicture
from vitrail.images.transforms import CropRule, read
from vitrail.images.wide import Array, Depth

Given = TypeVar("Given")
Made = TypeVar("Made")
ERRORS_PER_PICTURE = 8  # a batch ends early where bad files pile up, so that they are reported while memory stays flat


@dataclass(frozen=True, slots=True)
class File:
    """What became of one file of the list."""

    index: int  # its place in the list
    source: Source
    width: int | None = None
    height: int | None = None
    notes: tuple[str, ...] = ()
    error: BadPicture | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """Pixels of the good files (files x height x width x channels), and all files, good and bad, in order."""

    pixels: Array
    files: tuple[File, ...]

    @property
    def good(self) -> tuple[File, ...]:
        """The file of each row of pixels."""
        return tuple(file for file in self.files if file.error is None)


def batches(
    sources: Iterable[Source],
    preprocess: Preprocess,
    *,
    batch_size: int,
    workers: int | None = None,
    depth: Depth = 8,
    crop: CropRule = "torchvision",
    options: Decoding = DEFAULT,
) -> Iterator[Batch]:
    """Every source in exactly one batch, in order. The next two batches are decoded while one is worked on."""

    def load(numbered: tuple[int, Source]) -> tuple[File, Array | None]:
        index, source = numbered
        try:
            pixels, picture = read(source, preprocess, depth=depth, crop=crop, options=options)
        except BadPicture as error:
            # A copy has no traceback, which would keep the bytes of the file alive as long as the error.
            return File(index, source, error=copy(error)), None
        return File(index, source, picture.width, picture.height, picture.notes), pixels

    files: list[File] = []
    good: list[Array] = []
    for file, pixels in in_order(load, enumerate(sources), workers=workers, ahead=2 * batch_size):
        files.append(file)
        good += [] if pixels is None else [pixels]
        if len(good) == batch_size or len(files) - len(good) >= ERRORS_PER_PICTURE * batch_size:
            yield _batch(good, files, preprocess, depth)
            files, good = [], []
    if files:
        yield _batch(good, files, preprocess, depth)


def in_order(
    work: Callable[[Given], Made], items: Iterable[Given], *, workers: int | None = None, ahead: int = 64
) -> Iterator[Made]:
    """`work` on every item in threads; results in the order of the items, at most `ahead` of them waiting."""
    waiting: deque[Future[Made]] = deque()
    with ThreadPoolExecutor(workers or cores(), thread_name_prefix="vitrail-decode") as pool:
        try:
            for item in items:
                waiting.append(pool.submit(work, item))
                if len(waiting) > ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def cores() -> int:
    """The processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _batch(good: list[Array], files: list[File], preprocess: Preprocess, depth: Depth) -> Batch:
    empty = np.empty((0, *preprocess.size, len(preprocess.mean)), np.uint8 if depth == 8 else np.uint16)
    return Batch(np.stack(good) if good else empty, tuple(files))
