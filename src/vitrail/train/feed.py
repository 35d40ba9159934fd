"""Pictures from files to micro-batches, read ahead by threads or processes, in an order that none can change.

A picture that cannot be read is left out of its batch, in this epoch and every other: what remains depends on the
files alone, and an interrupted run that goes on meets the same batches.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

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

Found: TypeAlias = tuple[Key | None, Array | BadPicture | None]  # see Reader
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

    def __call__(self, key: Key | None) -> Found:
        """The pixels of a picture in an epoch, or why there are none. No key: nothing, the end of a portion."""
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


def feed(
    reader: Reader, portions: Iterable[Sequence[Key]], workers: int, size: int, device: torch.device
) -> Iterator[MicroBatch]:
    """One micro-batch on the device for each portion of keys, in their order. `size` is that of a usual portion."""
    count = cores() if workers < 0 else workers
    # Between two pictures a thread runs Python, where threads take turns. Two feed a CPU; a GPU is fed by processes.
    read = (
        by_processes(reader, portions, count)
        if device.type == "cuda" and count
        else by_threads(reader, portions, count, AHEAD * size)
    )
    for portion in read:
        images = normalise(portion.pixels.numpy(), reader.preprocess, device)
        labels = torch.tensor([reader.samples[key.index].label for key in portion.keys], dtype=torch.long)
        yield MicroBatch(images, labels, portion.keys, portion.bad)


@dataclass(frozen=True)
class Portion:
    """What was read of a portion of keys; a tensor, because that is what processes can share without a copy."""

    keys: tuple[Key, ...]
    pixels: Tensor
    bad: tuple[tuple[Key, BadPicture], ...]


def by_threads(reader: Reader, portions: Iterable[Sequence[Key]], workers: int, ahead: int) -> Iterator[Portion]:
    """Portions read a picture at a time by threads, or here and now without any."""
    keys = (key for portion in portions for key in (*portion, None))
    found: list[Found] = []
    for key, result in in_order(reader, keys, workers=workers, ahead=ahead) if workers else map(reader, keys):
        if key is None:
            yield stacked(reader, found)
            found = []
        else:
            found.append((key, result))


def by_processes(reader: Reader, portions: Iterable[Sequence[Key]], workers: int) -> Iterator[Portion]:
    """Portions read whole, each by one process."""
    return iter(
        DataLoader(
            Portions(reader),
            batch_sampler=portions,  # type: ignore[arg-type]  # asks for whole numbers, and takes any keys
            num_workers=workers,
            collate_fn=as_it_is,
            worker_init_fn=leave_signals,
            generator=torch.Generator(),  # or it would draw from that of the training
        )
    )


@dataclass(frozen=True)
class Portions(Dataset[Portion]):
    """What a process of torch's DataLoader asks."""

    reader: Reader

    def __getitems__(self, keys: Sequence[Key]) -> Portion:
        """A whole portion."""
        return stacked(self.reader, [self.reader(key) for key in keys])


def as_it_is(portion: Any) -> Any:
    """A portion is put together where it was read."""
    return portion


def leave_signals(worker: int) -> None:  # noqa: ARG001 (DataLoader passes it)
    """A signal is for the process that trains; it ends the others when it is done."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def stacked(reader: Reader, found: Sequence[Found]) -> Portion:
    """The good pictures as one tensor, and the bad ones."""
    good = [(key, result) for key, result in found if key and isinstance(result, np.ndarray)]
    bad = tuple((key, result) for key, result in found if key and isinstance(result, BadPicture))
    empty = np.empty((0, *reader.preprocess.size, len(reader.preprocess.mean)), np.uint8)
    pixels = np.stack([pixels for _, pixels in good]) if good else empty
    return Portion(tuple(key for key, _ in good), torch.from_numpy(pixels), bad)
