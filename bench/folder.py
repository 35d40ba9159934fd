"""A folder of JPEG files to a table of answers, and a command to its first label: beside the transformers pipeline.

Every library runs in a process of its own, as a user would run it; they take turns over the same files.
"""

from __future__ import annotations

import csv
import sys
import tempfile
from pathlib import Path

import torch

import vitrail
from bench.child import Child, once
from bench.interleave import Timing, table
from bench.pictures import folder_of, photos
from bench.plots import bars, saved

FILES, LIBRARIES = 1000, ("vitrail", "transformers")
TURNS = {"Ti/16": 250, "B/16": 50}  # files at a time: some seconds of the slower one
PATIENCE = {"Ti/16": 1000, "B/16": 200}  # files for the pipeline, whose rate does not change any more
STARTS = 6
PREDICT = (str(Path(sys.executable).with_name("vitrail")), "predict")
PIPELINE = """
import sys
from bench.peers import peer
pipe = peer("transformers").pipeline("image-classification", model=sys.argv[1])
print(pipe(sys.argv[2])[0])
"""


def folder() -> str:
    """1,000 files end to end: listed, read, resized, run, written; of B/16 the pipeline does the first 200."""
    rows: list[list[object]] = []
    rates: dict[str, list[float]] = {"vitrail, balanced": [], "transformers pipeline": []}
    with tempfile.TemporaryDirectory() as root:
        for name, turn in TURNS.items():
            where = Path(root) / name.replace("/", "")
            seconds, memory = ends(name, turn, where)
            timing, same = Timing(seconds), same_labels(where / "pictures")
            rows += [line(name, library, timing, memory, same) for library in LIBRARIES]
            for shown, library in zip(rates, LIBRARIES, strict=True):
                rates[shown].append(TURNS[name] * len(seconds[library]) / sum(seconds[library]))
    header = ["model", "library", "files", "pictures/s", "times as fast (quartiles)", "peak memory MB", "same label"]
    return table(header, rows) + "\n\n" + saved(bars(rates, list(TURNS), "pictures per second, end to end"), "folder")


def ends(name: str, turn: int, where: Path) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Both libraries over all files of one model, a subfolder at a time: seconds, and peak memory in MB."""
    model, threads = model_of(name, where), torch.get_num_threads()
    files = folder_of(FILES, where / "pictures", turn)
    folders = sorted(path for path in files.iterdir() if path.is_dir())
    warm = folder_of(8, where / "warm", 8) / "000"
    trial(model, where / "cache", warm)
    children = {
        library: Child("bench.answer", library, model, threads=threads, cache=where / "cache") for library in LIBRARIES
    }
    for child in children.values():
        child.ask(warm)
    seconds: dict[str, list[float]] = {library: [] for library in LIBRARIES}
    for turn, folder in enumerate(folders):
        for library, child in children.items():
            if library == "vitrail" or turn * TURNS[name] < PATIENCE[name]:
                seconds[library].append(child.seconds(folder))
    return seconds, {library: child.end() for library, child in children.items()}


def line(name: str, library: str, timing: Timing, memory: dict[str, float], same: float) -> list[object]:
    files = TURNS[name] * len(timing.seconds[library])
    both = min(map(len, timing.seconds.values()))
    middle, low, high = Timing({one: times[:both] for one, times in timing.seconds.items()}).speedup("vitrail", library)
    rate, share = files / sum(timing.seconds[library]), memory[library] / memory["transformers"]
    times = f"{middle:.2f} ({low:.2f} to {high:.2f})"
    return [name, library, files, f"{rate:.1f}", times, f"{memory[library]:.0f} ({share:.0%})", f"{same:.1%}"]


def same_labels(pictures: Path) -> float:
    """For which share of the files both have the same first class; theirs is float32, ours bfloat16."""
    same = []
    for theirs in pictures.glob("*.transformers.csv"):
        with theirs.open(newline="") as file:
            expected = {path: label for path, label, _ in csv.reader(file)}
        with theirs.with_name(theirs.name.replace("transformers", "vitrail")).open(newline="") as file:
            same += [row["label"] == expected[row["path"]] for row in csv.DictReader(file)]
    return sum(same) / len(same)


def start() -> str:
    """From the start of a process to its first label, B/16; graphs and files are in their caches for everybody."""
    with tempfile.TemporaryDirectory() as root:
        model, photo = model_of("B/16", Path(root)), photos()[0]
        trial(model, Path(root) / "cache", photo)
        commands = {
            "vitrail": [*PREDICT, str(model), str(photo)],
            "transformers": [sys.executable, "-c", PIPELINE, str(model), str(photo)],
        }
        runs = [
            {name: once(command, Path(root) / "cache") for name, command in commands.items()} for _ in range(STARTS)
        ]
    timing = Timing({name: [run[name][0] for run in runs[1:]] for name in commands})
    rows: list[list[object]] = []
    for name in commands:
        middle, low, high = timing.speedup("vitrail", over=name)
        memory = max(run[name][1] for run in runs)
        rows.append([name, f"{timing.median(name):.2f}", f"{middle:.2f} ({low:.2f} to {high:.2f})", f"{memory:.0f}"])
    return table(["library", "seconds", "vitrail is x faster (quartiles)", "peak memory MB"], rows)


def trial(model: Path, cache: Path, pictures: Path) -> None:
    """A first run, in a process that ends: the engine is chosen and its graph kept."""
    measured([*PREDICT, str(model), str(pictures)], cache)


def measured(command: list[str], cache: Path) -> tuple[float, float]:
    """Seconds and peak memory of a command, on as many threads as everybody has."""
    return once(command, threads=torch.get_num_threads(), cache=cache)


def model_of(name: str, where: Path) -> Path:
    """A model of that name in the layout both libraries read."""
    vitrail.save(vitrail.create(name, hidden_act="gelu", initializer="hf", seed=0), where / "model")
    return where / "model"
