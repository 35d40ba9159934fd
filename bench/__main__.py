"""Run the sections named on the command line (default: all), print each, and write them into bench/RESULTS.md."""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import re
import time
from pathlib import Path

RESULTS = Path(__file__).parent / "RESULTS.md"

# section: (where it is, its title)
SECTIONS = {
    "eager": ("bench.model", "Eager forward pass, ViT-B/16 at 224"),
    "kernels": ("bench.model", "Attention kernels"),
    "last_block": ("bench.model", "The last block computes only the pooled token"),
    "pruning": ("bench.model", "Pruned heads"),
    "loading": ("bench.loading", "Loading L/16"),
    "explaining": ("bench.explain", "Looking inside, ViT-B/16"),
    "large": ("bench.explain", "Looking inside a picture of 1,024 px"),
    "rollouts": ("bench.explain", "Rollout of 1,000 pictures"),
    "inference": ("bench.inference", "Inference, ViT-B/16 at 224"),
    "agreement": ("bench.agreement", "Engines beside the model itself, on real pictures"),
    "folder": ("bench.folder", "A folder of 1,000 JPEG files, end to end"),
    "start": ("bench.folder", "From process start to the first label, B/16"),
    "growth_with_files": ("bench.growth", "Growth with files, Ti/16"),
    "growth_with_tokens": ("bench.growth", "Growth with tokens, B/16"),
    "training_tiny": ("bench.training", "A training step of Ti/16 at 224"),
    "training_small": ("bench.training", "A training step of S/16 at 224"),
    "training_base": ("bench.training", "A training step of B/16 at 224"),
}
HEADER = """# Measured

Every table comes from one interleaved run: contestants take turns, and ratios are taken within a round, so a machine
that slows down slows everyone. Written by `make bench` (or `python -m bench SECTION`); a section keeps its last run.
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"of {', '.join(SECTIONS)}")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    asked = parser.parse_args()
    unknown = set(asked.sections) - set(SECTIONS)
    if unknown:
        parser.error(f"no section {min(unknown)}; there are {', '.join(SECTIONS)}")
    import torch

    torch.set_num_threads(asked.threads)
    machine = f"{platform.machine()}, {asked.threads} threads, torch {torch.__version__}"
    for name in asked.sections or SECTIONS:
        module, title = SECTIONS[name]
        start = time.time()
        body = getattr(importlib.import_module(module), name)()
        date = time.strftime("%Y-%m-%d")
        note = f"`python -m bench {name}`, {date}, {machine}, {time.time() - start:.0f} s"
        text = f"## {title}\n\n{note}\n\n{body}\n"
        print(text, flush=True)
        record(title, text)


def record(title: str, text: str) -> None:
    """Put a section's text in its place in the results file, or at the end."""
    page = RESULTS.read_text() if RESULTS.exists() else HEADER
    place = re.compile(rf"## {re.escape(title)}\n.*?(?=\n## |\Z)", re.DOTALL)
    found = place.search(page)
    page = page[: found.start()] + text.rstrip("\n") + "\n" + page[found.end() :] if found else f"{page}\n{text}"
    RESULTS.write_text(page)


if __name__ == "__main__":  # a bench that starts processes is imported by them
    main()
