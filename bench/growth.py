"""How time and memory grow: with the number of files, and with the number of tokens beside timm."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import vitrail
from bench.folder import PREDICT, measured, model_of, trial
from bench.forward import NATIVE, TIMM
from bench.inference import in_turns
from bench.interleave import Timing, table
from bench.pictures import folder_of, pixels
from bench.plots import curves, saved

FILES, ROUNDS = (100, 300, 1000, 3000, 10_000), 2
SIZES = {224: (5, 1), 384: (5, 1), 512: (4, 1), 768: (3, 1), 1024: (2, 1)}  # pixels: rounds, runs
THEIRS, OURS = ("timm fp32", "timm bf16"), ("vitrail exact, openvino", "vitrail balanced, openvino")
CONTESTANTS = (*THEIRS, *OURS)


def growth_with_files() -> str:
    """`vitrail predict` of Ti/16 from start to end, for more and more files: seconds, and the line through them."""
    runs: dict[int, list[tuple[float, float]]] = {count: [] for count in FILES}
    with tempfile.TemporaryDirectory() as root:
        model = model_of("Ti/16", Path(root))
        folders = {count: folder_of(count, Path(root) / f"{count}", 1000) for count in FILES}
        trial(model, Path(root) / "cache", folders[FILES[0]])
        for turn in range(ROUNDS):
            for count, folder in folders.items():
                out = Path(root) / f"{count}-{turn}.csv"
                runs[count].append(
                    measured([*PREDICT, str(model), str(folder), "--out", str(out)], Path(root) / "cache")
                )
    seconds = [statistics.median(second for second, _ in runs[count]) for count in FILES]
    memory = [max(most for _, most in runs[count]) for count in FILES]
    begin, each = line_through(FILES, seconds)
    rows: list[list[object]] = []
    for count, second, most in zip(FILES, seconds, memory, strict=True):
        expected = begin + each * count
        rows.append([count, f"{second:.2f}", f"{expected:.2f}", f"{second / expected - 1:+.1%}", f"{most:.0f}"])
    header = ["files", "seconds", f"{begin:.2f} s + {1000 * each:.2f} ms a file", "off the line by", "peak memory MB"]
    plot = curves({"vitrail predict, Ti/16": {"vitrail balanced": (FILES, seconds)}}, "files", "seconds")
    return table(header, rows) + "\n\n" + saved(plot, "growth-files")


def line_through(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """Where the line begins and how it climbs: the one whose largest relative miss is small (each point weighs 1/y)."""
    weights = 1 / np.asarray(y)
    equations = np.stack([np.ones(len(x)), np.asarray(x, float)], axis=1) * weights[:, None]
    begin, each = np.linalg.lstsq(equations, np.ones(len(x)))[0]
    return float(begin), float(each)


def growth_with_tokens() -> str:
    """One picture through B/16 at more and more pixels, beside timm."""
    tokens = [(size // 16) ** 2 + 1 for size in SIZES]
    seconds: dict[str, list[float]] = {name: [] for name in CONTESTANTS}
    rows: list[list[object]] = []
    for (size, (rounds, runs)), count in zip(SIZES.items(), tokens, strict=True):
        timing, error = one_size(size, rounds, runs)
        for name in CONTESTANTS:
            seconds[name].append(timing.median(name))
        ratios = [timing.speedup(ours, over=theirs)[0] for ours, theirs in zip(OURS, THEIRS, strict=True)]
        times = [f"{timing.median(name):.3f}" for name in CONTESTANTS]
        rows.append([size, count, *times, *(f"{ratio:.2f}" for ratio in ratios), f"{error:.0e}"])
    header = ["pixels", "tokens", *(f"{name}, s" for name in CONTESTANTS), "exact is x faster", "balanced is x faster"]
    plot = curves(
        {"B/16, one picture": {name: (tokens, found) for name, found in seconds.items()}}, "tokens", "seconds"
    )
    return table([*header, "exact differs by"], rows) + "\n\n" + saved(plot, "growth-tokens")


def one_size(size: int, rounds: int, runs: int) -> tuple[Timing, float]:
    """Everybody at one size of pictures, in turns; and by how much a logit of ours in float32 differs from timm's."""
    model = vitrail.create("B/16", image_size=size, hidden_act="gelu", initializer="hf", seed=0)
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root)
        vitrail.save(model, folder / NATIVE)
        vitrail.save(model, folder / TIMM, format="timm")
        np.save(folder / "pictures.npy", pixels(1, model.preprocess))
        timing = in_turns(CONTESTANTS, folder, rounds, runs)
        ours, theirs = (np.load(folder / f"{name}.npy") for name in (OURS[0], THEIRS[0]))
        return timing, float(np.abs(ours - theirs).max())
