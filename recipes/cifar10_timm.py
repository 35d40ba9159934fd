"""timm's ViT with the augmentation of timm's train.py on the same CIFAR-10, in a given processor time.

    PYTHONPATH=. python recipes/cifar10_timm.py DATA MINUTES OUT.csv        # DATA as recipes/cifar10.py makes it

A ViT-Ti of 6 blocks over patches of 4 x 4, the shape of cifar10.toml. As train.py has it by default: random crops from
8% of a picture, flips, colour jitter 0.4, label smoothing 0.1, a cosine; chosen here: AdamW, as every ViT recipe of
timm's has, drop path 0.1, autocast to bfloat16. As many epochs as fit: ten steps are timed first.
MINUTES are of the processor, over all threads, so that a run on a machine that does other things too is comparable
(threads that wait for one another count as busy: OMP_NUM_THREADS=1). OUT.csv: epoch, minutes, test accuracy.
"""

from __future__ import annotations

import csv
import math
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from bench.peers import peer  # imports timm beside a torch that torchvision was not built for

BATCH, RATE, DECAY, WARMUP, TIMED = 250, 1e-3, 0.05, 0.05, 10
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
Pictures = list[tuple[Image.Image, int]]
Batches = list[tuple[Tensor, Tensor]]


def main(data: Path, minutes: float, out: Path) -> None:
    """Train until the time is up, test after every epoch."""
    torch.manual_seed(0)
    shape = {"img_size": 32, "patch_size": 4, "depth": 6, "num_classes": 10, "drop_path_rate": 0.1}
    model = peer("timm").create_model("vit_tiny_patch16_224", **shape)
    optimizer = peer("timm.optim").create_optimizer_v2(model, opt="adamw", lr=RATE, weight_decay=DECAY, fused=True)
    learn, look = transforms()
    training, test = pictures(data / "train.tar"), pictures(data / "test.tar")
    with out.open("w", newline="", buffering=1) as file:
        table = csv.writer(file)
        table.writerow(["epoch", "minutes", "test_top1"])
        epochs = epochs_in(minutes, model, optimizer, list(batches(training[: TIMED * BATCH], learn)), len(training))
        began, steps = time.process_time(), epochs * (len(training) // BATCH)
        for epoch in range(epochs):
            order = torch.randperm(len(training)).tolist()
            shuffled = batches([training[index] for index in order], learn)
            for done, (images, labels) in enumerate(shuffled, epoch * (len(training) // BATCH)):
                step(model, optimizer, RATE * share(done, steps), images, labels)
            table.writerow([epoch + 1, round((time.process_time() - began) / 60, 2), accuracy(model, test, look)])


def epochs_in(
    minutes: float, model: torch.nn.Module, optimizer: torch.optim.Optimizer, few: Batches, count: int
) -> int:
    """Epochs that fit. Steps at no rate change nothing, and take their time; testing takes a fifteenth on top."""
    began = time.process_time()
    for images, labels in few:
        step(model, optimizer, 0.0, images, labels)
    per_epoch = (time.process_time() - began) / 60 / len(few) * count / BATCH
    return max(1, round(minutes / (per_epoch * 16 / 15)))


def transforms() -> tuple[Callable[[Image.Image], Tensor], Callable[[Image.Image], Tensor]]:
    """For training and for looking; by default crops from 8% of the picture, flips, colour jitter 0.4."""
    create_transform = peer("timm.data").create_transform
    learn = create_transform(32, is_training=True, mean=MEAN, std=STD, color_jitter=0.4)
    return learn, create_transform(32, mean=MEAN, std=STD, crop_pct=1.0)


def pictures(shard: Path) -> Pictures:
    """All pictures of a tar, decoded once, with the number of their folder."""
    with tarfile.open(shard) as tar:
        members = tar.getmembers()
        folders = sorted({member.name.split("/")[0] for member in members})
        files = ((Image.open(tar.extractfile(member)).convert("RGB"), member.name) for member in members)  # type: ignore[arg-type]
        return [(picture, folders.index(name.split("/")[0])) for picture, name in files]


def batches(several: Pictures, change: Callable[[Image.Image], Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches made by two threads, one ahead of the step."""
    groups = [several[start : start + BATCH] for start in range(0, len(several), BATCH)]
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(change, picture) for picture, _ in groups[0]]
        for group, following in zip(groups, [*groups[1:], []], strict=True):
            ready, waiting = waiting, [pool.submit(change, picture) for picture, _ in following]
            yield torch.stack([one.result() for one in ready]), torch.tensor([label for _, label in group])


def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, rate: float, images: Tensor, labels: Tensor) -> None:
    """As train.py --amp --amp-dtype bfloat16 does it on a CPU."""
    model.train()
    for group in optimizer.param_groups:
        group["lr"] = rate
    with torch.autocast("cpu", torch.bfloat16):
        loss = F.cross_entropy(model(images), labels, label_smoothing=0.1)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def share(done: int, steps: int) -> float:
    """Of the learning rate: linear warm-up, then a cosine."""
    warmup = WARMUP * steps
    return (done + 1) / warmup if done < warmup else (1 + math.cos(math.pi * (done - warmup) / (steps - warmup))) / 2


@torch.inference_mode()
def accuracy(model: torch.nn.Module, test: Pictures, look: Callable[[Image.Image], Tensor]) -> float:
    """Percent of the test pictures that are right."""
    model.eval()
    with torch.autocast("cpu", torch.bfloat16):
        right = sum(int((model(images).argmax(1) == labels).sum()) for images, labels in batches(test, look))
    return round(100 * right / len(test), 2)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3]))
