"""Killed twenty times over 20,000 files, does predict end with every path exactly once, under its own answer? (B3)"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from chaos.figures import report
from chaos.untouched import tree
from images.drawn import encoded
from PIL import Image

import vitrail
from vitrail.bulk.parts import ROWS
from vitrail.config import ViTConfig
from vitrail.images.transforms import normalise, read
from vitrail.model.vit import VisionTransformer, create

pytestmark = pytest.mark.chaos
FILES, DIFFERENT, KILLS = 20_000, 100, 20
LAST = FILES // ROWS  # parts after which the next rows are the last
GROWTH = int(os.environ.get("VITRAIL_CHAOS_FILES", "100000"))  # files memory is measured over
CONFIG = ViTConfig(
    hidden_size=32,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=48,
    image_size=16,
    patch_size=8,
    num_classes=50,
)


@pytest.fixture(scope="module")
def model() -> VisionTransformer:
    torch.manual_seed(1)
    made = create(CONFIG, seed=0)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return made


def fill(folder: Path, count: int) -> None:
    """File number n is picture n % DIFFERENT by another name; every hundredth is cut short."""
    folder.mkdir()
    random_pixels = np.random.default_rng(0)
    for number in range(min(DIFFERENT, count)):
        whole = encoded(Image.fromarray(random_pixels.integers(0, 256, (20, 20, 3), np.uint8)))
        (folder / f"{number:06}.png").write_bytes(whole[:60] if number == 7 else whole)
    for number in range(DIFFERENT, count):
        os.link(folder / f"{number % DIFFERENT:06}.png", folder / f"{number:06}.png")


def right_answers(model: VisionTransformer, folder: Path) -> list[tuple[str, int | None]]:
    """The class of each different picture, by the model's own code."""
    found: list[tuple[str, int | None]] = []
    for number in range(DIFFERENT):
        try:
            pixels, _ = read(folder / f"{number:06}.png", model.preprocess)
        except vitrail.images.reading.BadPicture:
            found.append(("error", None))
            continue
        with torch.inference_mode():
            found.append(("ok", int(model(normalise(pixels[None], model.preprocess)).argmax())))
    return found


def command(verb: str, out: str, *more: str) -> list[str]:
    """A job on photos/ that can be gone on with."""
    arguments = ["model", "photos", "--out", out, "--resume", "--engine", "openvino", "--precision", "exact"]
    return [sys.executable, "-m", "vitrail", verb, *arguments, *more]


def parts_in(folder: Path) -> int:
    return len(list(folder.glob("part-*.jsonl"))) if folder.exists() else 0


def test_every_path_once_however_often_it_is_killed(model, tmp_path):
    pytest.importorskip("openvino", reason="the extra `fast` is not installed")
    fill(tmp_path / "photos", FILES)
    vitrail.save(model, tmp_path / "model")
    untouched = tree(tmp_path / "photos")
    chance, parts, kills, begun = random.Random(5), tmp_path / "rows.jsonl.parts", 0, time.monotonic()
    while kills < KILLS:
        process = subprocess.Popen(command("predict", "rows.jsonl"), cwd=tmp_path, stderr=subprocess.DEVNULL)
        before = parts_in(parts)
        patience = 0.6 if before >= LAST else 60.0 if kills % 5 == 4 else 2.0  # at once, for a part, or at any moment
        until = time.monotonic() + (patience if patience > 2 else chance.uniform(0.2, patience))
        while process.poll() is None and parts_in(parts) == before and time.monotonic() < until:
            time.sleep(0.002)
        assert process.poll() is None, "it was done before it could be killed often enough"
        process.send_signal(signal.SIGKILL)
        process.wait()
        kills += 1
        assert not (tmp_path / "rows.jsonl").exists()
    done = subprocess.run(command("predict", "rows.jsonl"), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert [row["path"] for row in rows] == [f"photos/{number:06}.png" for number in range(FILES)]
    right = right_answers(model, tmp_path / "photos")
    wrong = [row["path"] for n, row in enumerate(rows) if (row["status"], row["index"]) != right[n % DIFFERENT]]
    assert wrong == []
    assert tree(tmp_path / "photos") == untouched
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "photos", "rows.jsonl"]
    errors = sum(row["status"] == "error" for row in rows)
    seconds = round(time.monotonic() - begun)
    report("predict killed", files=FILES, errors=errors, kills=kills, rows=len(rows), wrong=0, seconds=seconds)


PEAK = """
import sys
from vitrail.cli import main
try:
    main()
finally:  # not ru_maxrss: a process inherits it from the one that started it
    print(*[line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")], file=sys.stderr)
"""


@pytest.mark.parametrize("verb", ["predict", "embed"])
def test_memory_does_not_grow_with_the_files(model, tmp_path, verb):
    """At most 1 KB a file, of which most is its name."""
    pytest.importorskip("openvino", reason="the extra `fast` is not installed")
    vitrail.save(model, tmp_path / "model")
    peaks = {}
    for count in (GROWTH // 10, GROWTH // 10, GROWTH):  # the first time the engine is chosen
        folder = tmp_path / str(count)
        if not (folder / "photos").exists():
            folder.mkdir()
            fill(folder / "photos", count)
            (folder / "model").symlink_to(tmp_path / "model")
        out = folder / {"predict": "rows.csv", "embed": "rows.npy"}[verb]
        for old in folder.glob("rows.*"):
            old.unlink()
        begun = time.monotonic()
        _, _, _, *arguments = command(verb, out.name, "--quiet")
        done = subprocess.run(
            [sys.executable, "-c", PEAK, *arguments], cwd=folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        peaks[count] = int(done.stderr.split()[-1]), time.monotonic() - begun
    (few, less), (many, more) = peaks[GROWTH // 10], peaks[GROWTH]
    each = (many - few) * 1024 / (GROWTH - GROWTH // 10)
    report("memory", verb=verb, files=GROWTH, kb_few=few, kb_many=many, bytes_each=round(each), seconds=(less, more))
    assert each <= 1024
