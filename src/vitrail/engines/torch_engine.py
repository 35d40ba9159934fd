"""Runs a folded model with torch itself: on a CPU, with CUDA or on Apple's GPUs; needs nothing else installed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.engines import folded as f
from vitrail.engines.base import Card, Job, Numbers, Outputs, Pictures, batches, check_pictures, outputs_of
from vitrail.engines.graph import run
from vitrail.engines.torch_ops import TorchOps

DTYPES = {"exact": torch.float32, "balanced": torch.bfloat16}


class TorchEngine:
    """A folded model of tensors, run a word at a time."""

    name = "torch"

    def __init__(self, model: f.Folded, card: Card, job: Job, device: torch.device) -> None:
        self.model, self.card, self.job, self.device = model, card, job, device
        self.ops = TorchOps(DTYPES[job.precision])

    @torch.inference_mode()
    def run(self, pictures: Pictures) -> Outputs:
        """Pictures to what the job asks for, a batch at a time."""
        pictures = check_pictures(pictures, self.card, self.job)
        parts = [self.batch(torch.tensor(part)) for part in batches(pictures, self.job.batch)]
        joined: dict[str, Numbers] = {
            name: np.concatenate([part[name] for part in parts])[: len(pictures)] for name in self.job.outputs
        }
        return outputs_of(joined, self.card, self.job)

    def batch(self, pictures: Tensor) -> dict[str, Numbers]:
        """The outputs of one batch, by name."""
        named = run(self.ops, self.model, pictures.to(self.device), self.job.outputs)
        return {name: value.float().cpu().numpy() for name, value in named.items()}


def build(model: f.Folded, card: Card, job: Job) -> TorchEngine:
    """The engine for a folded model, on the best device there is."""
    device, dtype = best_device(), DTYPES[job.precision]
    if device.type == "cpu" and torch.get_num_threads() != job.threads:
        torch.set_num_threads(job.threads)
    centre = torch.from_numpy(model.stem.centre).to(device)  # in float32: it meets 16-bit integers
    model = f.mapped(model, lambda array: torch.from_numpy(array).to(device, dtype))
    model = replace(model, stem=replace(model.stem, centre=centre))
    if device.type == "cpu" and dtype == torch.float32 and packing_wins():
        model = f.mapped(model, packed, leaf=lambda value: isinstance(value, f.Linear))
    return TorchEngine(model, card, job, device)


def best_device() -> torch.device:
    """CUDA, then Apple's GPU, then the CPU."""
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def packed(layer: f.Linear) -> f.Linear:
    """The layer in oneDNN's own layout, which F.linear hands to oneDNN instead of MKL."""
    bias = None if layer.bias is None else layer.bias.to_mkldnn()
    return replace(layer, weight=layer.weight.to_mkldnn(), bias=bias)


@lru_cache
def packing_wins() -> bool:
    """Whether oneDNN multiplies float32 faster here than torch's default, which is MKL on x86.

    On AMD processors MKL does not use AVX-512: 87 GFLOP/s a core against 185 (bench/RESULTS.md). On Intel's it does.
    """
    if not torch.backends.mkldnn.is_available():
        return False
    x, layer = torch.ones(256, 768), f.Linear(torch.ones(768, 768))
    ops, rival = TorchOps(torch.float32), packed(layer)
    return seconds(lambda: ops.linear(x, rival)) < 0.8 * seconds(lambda: F.linear(x, layer.weight))


def seconds(work: Callable[[], object]) -> float:
    """The quickest of a few runs."""
    times = []
    with torch.inference_mode():
        for _ in range(7):
            start = time.perf_counter()
            work()
            times.append(time.perf_counter() - start)
    return min(times)
