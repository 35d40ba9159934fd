"""Loading L/16 (1.2 GB in fp32): time and memory, beside transformers and timm, each in a process of its own."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import vitrail
from bench.interleave import table

# What each contestant runs, after its imports: {path} is the checkpoint in that library's own layout. One number per
# model is read from every parameter, so that nothing is left unread behind a lazy map.
CONTESTANTS = {
    "vitrail": ("from vitrail.checkpoint import load", "model = load({path!r})"),
    "transformers": (
        "import bench.peers; from transformers import ViTForImageClassification",
        "model = ViTForImageClassification.from_pretrained({path!r}).eval()",
    ),
    "timm": (
        "import bench.peers, timm",
        "model = timm.create_model('vit_large_patch16_224', checkpoint_path={path!r}).eval()",
    ),
}
MEASURE = """
import json, resource, time, torch
{imports}
def resident():
    return int(open('/proc/self/statm').read().split()[1]) * resource.getpagesize()
before = resident()
start = time.perf_counter()
{load}
total = sum(float(p.detach().view(-1)[::1024].sum()) for p in model.parameters())
seconds = time.perf_counter() - start
peak = int(open('/proc/self/status').read().partition('VmHWM:')[2].split()[0]) * 1024
print(json.dumps([seconds, peak - before]))
"""


def loading(rounds: int = 9) -> str:
    """Seconds and memory to a model whose every weight has been touched; files are in the page cache for everyone."""
    with tempfile.TemporaryDirectory() as folder:
        paths, size = written(Path(folder))
        runs: dict[str, list[tuple[float, float]]] = {name: [] for name in CONTESTANTS}
        for _ in range(rounds):
            for name in CONTESTANTS:
                runs[name].append(measured(name, paths[name]))
    rows: list[list[object]] = []
    for name, results in runs.items():
        seconds, memory = (statistics.median(values) for values in zip(*results, strict=True))
        ratios = [theirs[0] / ours[0] for ours, theirs in zip(runs["vitrail"], results, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        rows.append([name, f"{seconds:.2f}", f"{middle:.2f} ({low:.2f} to {high:.2f})", f"{memory / size:.2f}"])
    return table(["library", "seconds", "vitrail is x faster (quartiles)", "peak memory / file size"], rows)


def written(folder: Path) -> tuple[dict[str, str], int]:
    """The same L/16 in the native (= Hugging Face) layout and in timm's."""
    from vitrail.checkpoint import save

    model = vitrail.create("L/16", hidden_act="gelu", seed=0)
    save(model, folder / "native")
    save(model, folder / "timm", format="timm")
    weights = next((folder / "timm").glob("*.safetensors"))
    native = str(folder / "native")
    return {"vitrail": native, "transformers": native, "timm": str(weights)}, weights.stat().st_size


def measured(name: str, path: str) -> tuple[float, float]:
    imports, load = CONTESTANTS[name]
    program = MEASURE.format(imports=imports, load=load.format(path=path))
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    seconds, memory = json.loads(shown.stdout.strip().splitlines()[-1])
    return seconds, memory
