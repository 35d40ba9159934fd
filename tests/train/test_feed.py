"""Does it matter who reads the pictures? Threads and processes give the same portions, bad pictures included."""

from __future__ import annotations

from pathlib import Path

import torch

from vitrail.config import Preprocess
from vitrail.images.augment import Augment
from vitrail.images.decode import Decoding
from vitrail.images.folder import Sample
from vitrail.train.feed import Reader, by_processes, by_threads
from vitrail.train.order import Key


def test_processes_read_what_threads_read(pictures: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n not a picture")
    files = [*sorted(pictures.rglob("*.png"))[:8], tmp_path / "broken.png"]
    augment = Augment(policy="randaugment", erase=0.5)
    reader = Reader(
        [Sample(str(file), 0) for file in files], Preprocess(size=(16, 16)), Decoding(), augment=augment, seed=3
    )
    portions = [[Key(1, 4), Key(1, 8), Key(1, 0)], [Key(1, 8)], [Key(2, 7), Key(2, 2)], [Key(2, 1)]]
    threads = list(by_threads(reader, portions, workers=2, ahead=4))
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    processes = list(by_processes(reader, portions, workers=2))
    assert [one.keys for one in processes] == [one.keys for one in threads]
    assert all(torch.equal(one.pixels, other.pixels) for one, other in zip(processes, threads, strict=True))
    assert [[(key, bad.row) for key, bad in one.bad] for one in processes] == [
        [(key, bad.row) for key, bad in one.bad] for one in threads
    ]
    assert [len(one.bad) for one in processes] == [1, 1, 0, 0]
    assert torch.equal(torch.rand(3), expected), "reading drew from the numbers that training draws from"
