"""Pictures from files to micro-batches, read ahead by threads, in an order that no thread can change.

A picture that cannot be read is left out of its batch, in this epoch and every other: what remains depends on the
files alone, and an interrupted run that goes on meets the same batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vitrail.config import Preprocess
from vitrail.images.augment import Augment, augmented
from vitrail.images.decode import Decoding, decode
from vitrail.images.dice import Dice
from vitrail.images.folder import Sample
from vitrail.images.loader import cores, in_order
from vitrail.images.reading import BadPicture
from vitrail.images.transforms import normalise, transform
from vitrail.images.wide import Array, Depth
from vitrail.train.order import Key

AHEAD = 2  # micro-batches being read while one is worked on


@dataclass(frozen=True)
class MicroBatch:
    """Normalised pictures, the label number of each, and what could not be read."""

    images: Tensor  # pictures x channels x height x width
    labels: Tensor
    keys: tuple[Key, ...]
    bad: tuple[tuple[Key, BadPicture], ...]

    def __len__(self) -> int:
        return len(self.keys)


@dataclass(frozen=True)
class Reader:
    """How one picture becomes pixels."""

    samples: Sequence[Sample]
    preprocess: Preprocess
    decoding: Decoding
    depth: Depth = 8
    augment: Augment | None = None  # None: as in evaluation
    seed: int = 0

    def __call__(self, key: Key | None) -> tuple[Key | None, Array | BadPicture | None]:
        """The pixels of a picture in an epoch, or why there are none. No key: nothing, the end of a micro-batch."""
        if key is None:
            return None, None
        try:
            return key, self.pixels(key)
        except BadPicture as error:
            return key, copy(error)  # a copy has no traceback, which would keep the file's bytes alive

    def pixels(self, key: Key) -> Array:
        """Decoded, then augmented or as in evaluation."""
        source, channels = self.samples[key.index].item, len(self.preprocess.mean)
        picture = decode(source, channels=channels, depth=self.depth, options=self.decoding).pixels
        if self.augment is None:
            return transform(picture, self.preprocess, depth=self.depth)
        return augmented(picture, self.preprocess, self.augment, Dice((self.seed, key.epoch, key.index)))


def feed(reader: Reader, portions: Iterable[Sequence[Key]], workers: int, size: int) -> Iterator[MicroBatch]:
    """One micro-batch for each portion of keys, in their order. `size` is that of a usual portion."""
    keys = (key for portion in portions for key in (*portion, None))
    good: list[tuple[Key, Array]] = []
    bad: list[tuple[Key, BadPicture]] = []
    for key, result in threaded(reader, keys, workers, AHEAD * size):
        if key is None:
            yield assembled(reader, good, bad)
            good, bad = [], []
        elif isinstance(result, BadPicture):
            bad.append((key, result))
        else:
            assert result is not None
            good.append((key, result))


def threaded(
    reader: Reader, keys: Iterable[Key | None], workers: int, ahead: int
) -> Iterator[tuple[Key | None, Array | BadPicture | None]]:
    """The reader on every key, in order; by threads ahead of time, or here and now without any."""
    if workers == 0:
        return map(reader, keys)
    return in_order(reader, keys, workers=cores() if workers < 0 else workers, ahead=ahead)


def assembled(reader: Reader, good: list[tuple[Key, Array]], bad: list[tuple[Key, BadPicture]]) -> MicroBatch:
    """The good pictures as one tensor."""
    keys = tuple(key for key, _ in good)
    empty = np.empty((0, *reader.preprocess.size, len(reader.preprocess.mean)), np.uint8)
    images = normalise(np.stack([array for _, array in good]) if good else empty, reader.preprocess)
    labels = torch.tensor([reader.samples[key.index].label for key in keys], dtype=torch.long)
    return MicroBatch(images, labels, keys, tuple(bad))
