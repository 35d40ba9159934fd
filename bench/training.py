"""A training step at 224: the same weights, pictures, optimiser and threads in every library, taking turns."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import vitrail
from bench.interleave import Timing, interleave, table
from bench.peers import peer
from bench.pictures import photos, pixels
from vitrail.config import Preprocess
from vitrail.images.augment import Augment
from vitrail.images.decode import Decoding
from vitrail.images.folder import Sample
from vitrail.images.transforms import normalise
from vitrail.model.vit import VisionTransformer
from vitrail.runs.directory import Run
from vitrail.train.arithmetic import arithmetic_for
from vitrail.train.config import DataConfig, TrainConfig
from vitrail.train.data import TrainingData
from vitrail.train.feed import MicroBatch, Reader, feed
from vitrail.train.heap import kept_memory
from vitrail.train.job import Job, Place
from vitrail.train.loss import loss_for
from vitrail.train.order import Key
from vitrail.train.start import fresh_state
from vitrail.train.step import take_step

Step = Callable[[], float]  # trains on the next batch, and says the loss
CLASSES, BATCHES, ROUNDS = 10, 4, 4
RATE, CLIP = 1e-4, 1.0
OURS, TRANSFORMERS = "vitrail", "transformers Trainer, fp32"


@dataclass(frozen=True)
class Batches:
    """Normalised photos with made-up labels, again and again from the first."""

    images: tuple[Tensor, ...]
    labels: tuple[Tensor, ...]

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            yield from zip(self.images, self.labels, strict=True)


def training_tiny() -> str:
    """Ti/16, everybody's loss on the same pictures from the same weights, and how fast pictures are read."""
    steps = measured("Ti/16", "vit_tiny_patch16_224", size=32, curve=12)
    return f"{steps}\n\nReading, with the augmentation of --preset best, alone: {reading(16):.0f} pictures/s."


def training_small() -> str:
    """S/16."""
    return measured("S/16", "vit_small_patch16_224", size=16)


def training_base() -> str:
    """B/16."""
    return measured("B/16", "vit_base_patch16_224", size=8)


def measured(name: str, timm_name: str, size: int, curve: int = 0) -> str:
    """Steps of so many pictures by everybody, first for the loss, then for the time."""
    model = vitrail.create(name, num_classes=CLASSES, hidden_act="gelu", initializer="timm", seed=0)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        vitrail.save(model, Path(folder) / "native")
        vitrail.save(model, Path(folder) / "timm", format="timm")
        steps = {who: stack.enter_context(process(who, Path(folder), timm_name, size)) for who in CONTESTANTS}
        curves = {who: [step() for _ in range(curve)] for who, step in steps.items()}
        timing = interleave(steps, ROUNDS, warmups=1)
    fastest = min((who for who in steps if who.startswith("timm")), key=timing.median)
    parts = [
        table(["", "pictures/s"], [[who, f"{size / timing.median(who):.1f}"] for who in steps]),
        f"{size} pictures a step. Times as fast as {times(timing, fastest)}; {times(timing, TRANSFORMERS)}.",
    ]
    if curve:
        parts += [
            f"The loss of {curve} steps on {BATCHES} batches, from the same weights:",
            table(["", "first", "last", "mean difference from timm fp32", "largest"], compared(curves)),
        ]
    return "\n\n".join(parts)


@contextmanager
def process(who: str, folder: Path, timm_name: str, size: int) -> Iterator[Step]:
    """A contestant in a process of its own, as it would train: how one keeps its memory helps or hurts no other."""
    ours, its = multiprocessing.get_context("spawn").Pipe()
    arguments = (its, who, folder, timm_name, size, torch.get_num_threads())
    child = multiprocessing.get_context("spawn").Process(target=take_turns, args=arguments, daemon=True)
    child.start()

    def step() -> float:
        ours.send(True)
        loss: float = ours.recv()
        return loss

    step()  # made and compiled, before the next one is
    try:
        yield step
    finally:
        ours.send(False)
        child.join()


def take_turns(turns: Connection, who: str, folder: Path, timm_name: str, size: int, threads: int) -> None:
    """In its process: a step whenever it is asked for one."""
    torch.set_num_threads(threads)
    model = vitrail.load(folder / "native")
    data = batches_of(model, size)
    with kept_memory() if who == OURS else nullcontext():  # vitrail.train.run does
        step = CONTESTANTS[who](model, folder, timm_name, data)
        while turns.recv():
            turns.send(step())


def vitrail_step(model: VisionTransformer, data: Batches) -> Step:
    """What `vitrail train` does between two batches, from start to end (train/step.py)."""
    size = len(data.labels[0])
    config = TrainConfig(batch_size=size, lr=RATE, weight_decay=0.0, clip=CLIP, schedule="constant", warmup=0.0)
    arithmetic = arithmetic_for("auto")
    state = fresh_state(model, config, arithmetic)
    names = tuple(model.labels)
    found = TrainingData("", names, (), (), torch.eye(len(names)), {})
    job = Job(Run(Path()), config, DataConfig(), Augment(), found, arithmetic, loss_for(config, torch.ones(1)), size)
    keys = tuple(Key(0, index) for index in range(size))

    def planned() -> Iterator[tuple[Place, MicroBatch]]:
        for step, (images, labels) in enumerate(data):
            yield Place(step, 0, last=True), MicroBatch(images, labels, keys, ())

    batches = planned()
    return lambda: take_step(job, state, batches).loss_sum / size


def timm_step(
    folder: Path, name: str, data: Batches, autocast: bool = False, half: bool = False, compiled: bool = False
) -> Step:
    """timm's own loop (its train.py): autocast, loss, clip, optimiser; the fused optimiser, which is its fastest."""
    weights = str(next((folder / "timm").glob("*.safetensors")))
    model = peer("timm").create_model(name, num_classes=CLASSES, checkpoint_path=weights).train()
    model = model.to(torch.bfloat16) if half else model
    optimizer = peer("timm.optim").create_optimizer_v2(model, opt="adamw", lr=RATE, weight_decay=0.0, fused=True)
    clip, run = peer("timm.utils").dispatch_clip_grad, torch.compile(model) if compiled else model
    batches = iter(data)

    def step() -> float:
        images, labels = next(batches)
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss = F.cross_entropy(run(images.to(torch.bfloat16) if half else images).float(), labels)
        loss.backward()
        clip(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return step


def trainer_step(folder: Path, data: Batches) -> Step:
    """The transformers Trainer with its defaults: its model, its training_step, and what its loop does after it."""
    transformers = peer("transformers")
    model = transformers.ViTForImageClassification.from_pretrained(folder / "native")
    given: Mapping[str, Any] = {"learning_rate": RATE, "lr_scheduler_type": "constant", "report_to": "none"}
    trainer = transformers.Trainer(model, transformers.TrainingArguments(str(folder / "hf"), use_cpu=True, **given))
    trainer.create_optimizer_and_scheduler(num_training_steps=10_000)
    trainer.current_gradient_accumulation_steps = 1  # as its loop does
    optimizer, batches = trainer.accelerator.prepare(trainer.optimizer), iter(data)

    def step() -> float:
        images, labels = next(batches)
        loss = trainer.training_step(model, {"pixel_values": images, "labels": labels})
        trainer.accelerator.clip_grad_norm_(model.parameters(), trainer.args.max_grad_norm)
        optimizer.step()
        trainer.lr_scheduler.step()
        model.zero_grad()
        return loss.item()

    return step


CONTESTANTS: Mapping[str, Callable[[VisionTransformer, Path, str, Batches], Step]] = {
    "timm fp32": lambda _, *given: timm_step(*given),
    "timm autocast": lambda _, *given: timm_step(*given, autocast=True),
    "timm autocast, compiled": lambda _, *given: timm_step(*given, autocast=True, compiled=True),
    "timm bf16 weights": lambda _, *given: timm_step(*given, half=True),
    "timm bf16 weights, compiled": lambda _, *given: timm_step(*given, half=True, compiled=True),
    TRANSFORMERS: lambda _, folder, name, data: trainer_step(folder, data),
    OURS: lambda model, folder, name, data: vitrail_step(model, data),
}


def batches_of(model: VisionTransformer, size: int) -> Batches:
    """So many batches of photos."""
    images = normalise(pixels(size * BATCHES, model.preprocess), model.preprocess)
    labels = torch.randint(0, CLASSES, (len(images),), generator=torch.Generator().manual_seed(0))
    return Batches(images.split(size), labels.split(size))


def reading(portions: int, size: int = 32) -> float:
    """Photos a second, decoded and augmented to 224 as a run does it, by a thread per processor."""
    samples = [Sample(os.fspath(path), 0) for path in photos()]
    augment = Augment(crop_scale=(0.5, 1.0), policy="randaugment", erase=0.25)
    reader = Reader(samples, Preprocess(), Decoding(), augment=augment)
    keys = [[Key(portion, index % len(samples)) for index in range(size)] for portion in range(portions)]
    start = time.perf_counter()
    read = sum(len(batch) for batch in feed(reader, keys, -1, size, torch.device("cpu")))
    return read / (time.perf_counter() - start)


def times(timing: Timing, rival: str) -> str:
    """How many times as fast as a rival, a round at a time."""
    middle, low, high = timing.speedup(OURS, over=rival)
    return f"{rival}: **{middle:.2f}** ({low:.2f} to {high:.2f})"


def compared(curves: Mapping[str, list[float]]) -> list[list[object]]:
    """Each curve's ends, and how far it is from that of 32-bit arithmetic."""
    exact = torch.tensor(curves["timm fp32"])
    rows: list[list[object]] = []
    for who, losses in curves.items():
        apart = (torch.tensor(losses) - exact).abs()
        rows.append([who, f"{losses[0]:.4f}", f"{losses[-1]:.4f}", f"{apart.mean():.4f}", f"{apart.max():.4f}"])
    return rows
