"""ViT-B/16 at 224: the same weights, pictures and threads in every library, taking turns."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch

import vitrail
from bench.interleave import Timing, interleave, table
from bench.peers import peer
from bench.pictures import pixels
from vitrail.engines.cache import Cache
from vitrail.engines.choose import open_engine
from vitrail.engines.openvino_runtime import runtime
from vitrail.images.transforms import normalise
from vitrail.model.vit import VisionTransformer

Run = Callable[[], np.ndarray]
ROUNDS = {1: 40, 8: 10}  # by batch
OURS = ("vitrail exact", "vitrail balanced")
RIVALS = {
    "vitrail exact": ("timm fp32", "transformers fp32", "OpenVINO f32, timm's export"),
    "vitrail balanced": ("timm fp32", "timm bf16", "OpenVINO bf16, timm's export"),
}


def inference() -> str:
    """Speed in one run, and how near everybody's answers are to timm's in float32."""
    model = vitrail.create("B/16", hidden_act="gelu", initializer="hf", seed=0)
    speeds: list[list[object]] = []
    ratios: list[list[object]] = []
    with tempfile.TemporaryDirectory() as folder:
        timm, transformers, graph = written(model, Path(folder))
        for batch, rounds in ROUNDS.items():
            pictures = pixels(batch, model.preprocess)
            contestants = peers(timm, transformers, graph, normalise(pictures, model.preprocess))
            contestants |= ours(model, pictures, Cache(Path(folder) / "cache"))
            with torch.inference_mode():
                expected = contestants["timm fp32"]()
                timing = interleave(contestants, rounds)
                speeds += [speed(name, batch, timing, run(), expected) for name, run in contestants.items()]
            ratios += [times_as_fast(name, batch, timing) for name in OURS]
    return "\n\n".join(
        (
            table(["batch", "", "pictures/s", "ms", "largest difference of a logit", "same first class"], speeds),
            table(["batch", "", "times as fast as (quartiles)", "", ""], ratios),
        )
    )


def written(model: VisionTransformer, folder: Path) -> tuple[Any, Any, Path]:
    """The model as timm's, as transformers', and as the graph that timm's own exporter makes of it."""
    vitrail.save(model, folder / "native")
    vitrail.save(model, folder / "timm", format="timm")
    weights = next((folder / "timm").glob("*.safetensors"))
    timm = peer("timm").create_model("vit_base_patch16_224", checkpoint_path=str(weights)).eval()
    transformers = peer("transformers").ViTForImageClassification.from_pretrained(folder / "native").eval()
    peer("timm.utils.onnx").onnx_export(timm, str(folder / "timm.onnx"), batch_size=2, check=False)
    return timm, transformers, folder / "timm.onnx"


def peers(timm: Any, transformers: Any, graph: Path, images: torch.Tensor) -> dict[str, Run]:
    """Everybody else on these images, which are already resized and normalised for them."""
    half, images16 = deepcopy(timm).to(torch.bfloat16), images.to(torch.bfloat16)
    return {
        "timm fp32": lambda: timm(images).numpy(),
        "transformers fp32": lambda: transformers(images).logits.numpy(),
        "OpenVINO f32, timm's export": openvino(graph, images, "f32"),
        "timm bf16": lambda: half(images16).float().numpy(),
        "OpenVINO bf16, timm's export": openvino(graph, images, "bf16"),
    }


def openvino(graph: Path, images: torch.Tensor, precision: str) -> Run:
    """OpenVINO as its manual says: the exported graph, of fixed shape, all threads on one request."""
    core = runtime().Core()
    model = core.read_model(graph)
    model.reshape(list(images.shape))
    settings = {"INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": torch.get_num_threads()}
    compiled = core.compile_model(model, "CPU", {"PERFORMANCE_HINT": "LATENCY", **settings})
    values = images.numpy()
    return lambda: compiled(values)[0]


def ours(model: VisionTransformer, pictures: np.ndarray, cache: Cache) -> dict[str, Run]:
    """The engine that --engine auto chooses, on pictures as they come from the resize."""

    def engine(precision: Any) -> Run:
        chosen = open_engine(
            model, precision=precision, batch=len(pictures), threads=torch.get_num_threads(), say=print, cache=cache
        )
        return lambda: chosen.run(pictures).logits  # type: ignore[return-value]

    return {f"vitrail {precision}": engine(precision) for precision in ("exact", "balanced")}


def speed(name: str, batch: int, timing: Timing, got: np.ndarray, expected: np.ndarray) -> list[object]:
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
