"""ViT-B/16 at 224: the same weights, pictures and threads in every library, each in a process of its own, in turns."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch

import vitrail
from bench.child import Child
from bench.forward import EXPORT, NATIVE, TIMM
from bench.interleave import Timing, table
from bench.peers import peer
from bench.pictures import pixels
from bench.plots import bars, saved
from vitrail.engines.cache import Cache
from vitrail.engines.choose import open_engine
from vitrail.model.vit import VisionTransformer

TURNS = {1: (13, 3), 8: (8, 1)}  # by batch: rounds, and runs of which the middle one counts
CONTESTANTS = (
    "timm fp32",
    "transformers fp32",
    "OpenVINO f32, timm's export",
    "timm bf16",
    "OpenVINO bf16, timm's export",
    "vitrail exact",
    "vitrail balanced",
)
RIVALS = {
    "vitrail exact": ("timm fp32", "transformers fp32", "OpenVINO f32, timm's export"),
    "vitrail balanced": ("timm fp32", "timm bf16", "OpenVINO bf16, timm's export"),
}


def inference() -> str:
    """Speed in one run, and how near everybody's answers are to timm's in float32."""
    model = vitrail.create("B/16", hidden_act="gelu", initializer="hf", seed=0)
    speeds: list[list[object]] = []
    ratios: list[list[object]] = []
    rates: dict[str, list[float]] = {name: [] for name in CONTESTANTS}
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root)
        write(model, folder)
        for batch, (rounds, runs) in TURNS.items():
            np.save(folder / "pictures.npy", pixels(batch, model.preprocess))
            chosen(model, batch, folder)
            timing = in_turns(CONTESTANTS, folder, rounds, runs)
            speeds += [speed(name, batch, timing, folder) for name in CONTESTANTS]
            ratios += [times_as_fast(name, batch, timing) for name in RIVALS]
            for name in CONTESTANTS:
                rates[name].append(batch / timing.median(name))
    picture = saved(bars(rates, [f"batch {batch}" for batch in TURNS], "pictures per second"), "inference")
    return "\n\n".join(
        (
            table(["batch", "", "pictures/s", "ms", "largest difference of a logit", "same first class"], speeds),
            table(["batch", "", "times as fast as (quartiles)", "", ""], ratios),
            picture,
        )
    )


def write(model: VisionTransformer, folder: Path) -> None:
    """The model as ours and transformers', as timm's, and as the graph that timm's own exporter makes of it."""
    vitrail.save(model, folder / NATIVE)
    vitrail.save(model, folder / TIMM, format="timm")
    weights = next((folder / TIMM).glob("*.safetensors"))
    timm = peer("timm").create_model("vit_base_patch16_224", checkpoint_path=str(weights)).eval()
    peer("timm.utils.onnx").onnx_export(timm, str(folder / EXPORT), batch_size=2, check=False)


def chosen(model: VisionTransformer, batch: int, folder: Path) -> None:
    """The trials of --engine auto, before anybody is timed: vitrail's processes find the choice in the cache."""
    for precision in ("exact", "balanced"):
        open_engine(
            model,
            precision=precision,  # type: ignore[arg-type]
            batch=batch,
            threads=torch.get_num_threads(),
            files=sorted(path for path in (folder / NATIVE).iterdir() if path.is_file()),
            pictures=pixels(8, model.preprocess),
            say=print,
            cache=Cache(folder / "cache" / "engines"),
        )


def in_turns(names: Iterable[str], folder: Path, rounds: int, runs: int) -> Timing:
    """Everybody ready first; then one library at a time, while the others wait for their turn."""
    threads = torch.get_num_threads()
    children = {
        name: Child("bench.forward", name, folder, threads, threads=threads, cache=folder / "cache") for name in names
    }
    for child in children.values():
        child.ask(runs)
    seconds: dict[str, list[float]] = {name: [] for name in children}
    for _ in range(rounds):
        for name, child in children.items():
            seconds[name].append(statistics.median(map(float, child.ask(runs).split())))
    for child in children.values():
        child.end()
    return Timing(seconds)


def speed(name: str, batch: int, timing: Timing, folder: Path) -> list[object]:
    got, expected = (np.load(folder / f"{library}.npy") for library in (name, "timm fp32"))
    seconds = timing.median(name)
    same = int((got.argmax(axis=1) == expected.argmax(axis=1)).sum())
    error = float(np.abs(got - expected).max())
    return [batch, name, f"{batch / seconds:.1f}", f"{1000 * seconds:.0f}", f"{error:.1g}", f"{same} of {batch}"]


def times_as_fast(name: str, batch: int, timing: Timing) -> list[object]:
    """How many times as fast as each rival, a round at a time."""
    cells = []
    for rival in RIVALS[name]:
        middle, low, high = timing.speedup(name, over=rival)
        cells.append(f"{rival}: **{middle:.2f}** ({low:.2f} to {high:.2f})")
    return [batch, name, *cells]
