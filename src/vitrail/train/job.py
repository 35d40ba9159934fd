"""What stays the same while a run goes on: its config, its data, and how it computes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch

from vitrail.images.augment import Augment
from vitrail.images.decode import Decoding
from vitrail.model.vit import VisionTransformer
from vitrail.runs.directory import Run
from vitrail.runs.signals import Signals
from vitrail.train.arithmetic import Arithmetic
from vitrail.train.config import DataConfig, TrainConfig
from vitrail.train.data import TrainingData
from vitrail.train.distributed import ALONE, World
from vitrail.train.features import Features
from vitrail.train.feed import MicroBatch, Reader, feed
from vitrail.train.loss import Loss
from vitrail.train.order import Key, Order, micro_batches


@dataclass(frozen=True)
class Place:
    """Where a micro-batch belongs."""

    step: int
    portion: int  # of the step, counted over all processes: one process with portions of this size would have the same
    last: bool  # of this process in this step


Batches = Iterator[tuple[Place, MicroBatch]]


@dataclass(frozen=True)
class Job:
    """A run's surroundings. What changes is in TrainState."""

    run: Run
    config: TrainConfig
    data_config: DataConfig
    augment: Augment
    data: TrainingData
    arithmetic: Arithmetic
    loss: Loss
    micro_batch: int
    world: World = ALONE
    features: Features | None = None  # a probe learns from these instead of pictures
    signals: Signals = field(default_factory=Signals)

    @property
    def order(self) -> Order:
        """Which pictures each step sees."""
        return Order(len(self.data.train), self.config.batch_size, self.config.seed)

    @property
    def steps(self) -> int:
        """Steps of the whole run."""
        return self.config.epochs * self.order.steps_per_epoch

    def stop_if_asked(self) -> None:
        """Raise Interrupted if any process was sent a signal: all of them leave together."""
        self.signals.number = self.world.most(self.signals.number)
        self.signals.check()

    def training_batches(self, model: VisionTransformer, step: int) -> Batches:
        """This process's pictures, from a step to the end of the run."""
        places: list[Place] = []

        def planned() -> Iterator[list[Key]]:
            for number, keys in self.order.steps(step, self.steps):
                several = micro_batches(keys, self.micro_batch, self.world.rank, self.world.size)
                for index, keys_of_one in enumerate(several):
                    places.append(Place(number, self.world.rank * len(several) + index, index == len(several) - 1))
                    yield keys_of_one

        if self.features is not None:
            yield from ((places.pop(0), self.seen(keys, validation=False)) for keys in planned())
            return
        reader = self.reader(model, augment=self.augment)
        for batch in feed(reader, planned(), self.data_config.workers, self.micro_batch, self.arithmetic.device):
            yield places.pop(0), batch

    def validation_batches(self, model: VisionTransformer) -> Iterator[MicroBatch]:
        """This process's share of the validation pictures, in order."""
        mine = [Key(0, index) for index in range(self.world.rank, len(self.data.val), self.world.size)]
        size, share = self.micro_batch, -(-len(self.data.val) // self.world.size)
        portions = (mine[start : start + size] for start in range(0, share, size))  # as many for every process
        if self.features is not None:
            return (self.seen(keys, validation=True) for keys in portions)
        return feed(self.reader(model, augment=None), portions, self.data_config.workers, size, self.arithmetic.device)

    def seen(self, keys: Sequence[Key], validation: bool) -> MicroBatch:
        """A portion of features, as pictures of a single pixel; those that could not be read have none."""
        assert self.features is not None
        split, samples = ("val", self.data.val) if validation else ("train", self.data.train)
        rows = self.features.val if validation else self.features.train
        good = tuple(key for key in keys if key.index not in self.features.bad[split])
        labels = torch.tensor([samples[key.index].label for key in good], dtype=torch.long)
        return MicroBatch(rows[[key.index for key in good], :, None, None], labels, good, ())

    def reader(self, model: VisionTransformer, augment: Augment | None) -> Reader:
        """How a training picture (with augmentation) or a validation picture becomes pixels."""
        return Reader(
            samples=self.data.val if augment is None else self.data.train,
            preprocess=model.preprocess,
            decoding=Decoding(background=self.data_config.background),
            depth=self.data_config.depth,
            augment=augment,
            seed=self.config.seed,
        )
