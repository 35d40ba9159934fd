"""What looking inside costs, beside a plain prediction in the same run."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import torch

from bench.interleave import Timing, interleave, table
from bench.pictures import photos
from vitrail.evaluate.answering import peak_memory
from vitrail.explain.attention import head_maps, rollout
from vitrail.explain.explain import explain_files
from vitrail.explain.relevance import relevance
from vitrail.images.loader import batches
from vitrail.images.transforms import normalise
from vitrail.model.variants import create

WORK = {
    "prediction": lambda model, images: model(images),
    "class-row attention, all layers": head_maps,
    "rollout": rollout,
    "relevance": relevance,
}


def explaining(rounds: int = 5) -> str:
    """B/16 at 224 px, one picture and eight."""
    model, rows = create("B/16", seed=0), []
    for batch in (1, 8):
        images = torch.randn(batch, 3, 224, 224)
        with torch.inference_mode():
            timing = interleave(
                {name: lambda work=work, images=images: work(model, images) for name, work in WORK.items()},
                rounds,
                warmups=1,
            )
        for name in WORK:
            middle, low, high = timing.speedup("prediction", over=name)  # how many predictions it takes the time of
            rows.append([batch, name, f"{timing.median(name):.2f} s", f"{middle:.2f} [{low:.2f}, {high:.2f}]"])
    return table(["B/16, 224 px, batch", "work", "median", "times a prediction (quartiles)"], rows)


def large() -> str:
    """Peak memory of a fresh process for one picture of 1,024 px: 4,097 tokens, 12 layers of 12 heads."""
    peaks = [[name, f"{peak_of(name):,.0f}"] for name in WORK]
    whole = 12 * 12 * 4097**2 * 4 / 2**20
    return table(
        ["B/16, one picture of 1,024 px", "peak memory MB"], [*peaks, ["(all weights at once)", f"{whole:,.0f}"]]
    )


FILES, TURN = 1000, 100


def rollouts() -> str:
    """1,000 files to rollout maps with the answers beside them, and to answers alone, a hundred files at a time."""
    model, given = create("Ti/16", seed=0), photos()
    files = [given[index % len(given)] for index in range(FILES)]

    def answers(some: list[Path]) -> None:
        with torch.inference_mode():
            for batch in batches(some, model.preprocess, batch_size=8):
                model(normalise(batch.pixels, model.preprocess))

    work = {"prediction": answers, "rollout": lambda some: list(explain_files(model, some, "rollout"))}
    seconds: dict[str, list[float]] = {name: [] for name in work}
    for start in range(-TURN, FILES, TURN):  # the first turn does not count
        for name, run in work.items():
            began = time.perf_counter()
            run(files[max(start, 0) : max(start, 0) + TURN])
            seconds[name] += [time.perf_counter() - began] if start >= 0 else []
    timing, rows = Timing(seconds), []
    for name in work:
        middle, low, high = timing.speedup(name, over="prediction")
        rate = FILES / sum(seconds[name])
        rows.append([name, FILES, f"{rate:.1f}", f"{middle:.2f} [{low:.2f}, {high:.2f}]"])
    return table(["Ti/16, 224 px, on torch", "files", "pictures/s", "times the rate of predictions (quartiles)"], rows)


def peak_of(name: str) -> float:
    """Megabytes, measured in a process that does nothing else."""
    code = f"from bench.explain import once; once({name!r})"
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


def once(name: str) -> None:
    model, images = create("B/16", seed=0), torch.randn(1, 3, 1024, 1024)
    with torch.inference_mode():
        WORK[name](model, images)
    print(peak_memory() / 2**20)
