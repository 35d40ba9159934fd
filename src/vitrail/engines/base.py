"""What an engine is: integer pictures in, numbers out. No runtime is imported here, and no torch."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from vitrail.config import Frozen, Pair, Preprocess, ViTConfig
from vitrail.errors import EnvironmentProblem, UsageError

if TYPE_CHECKING:
    from vitrail.model.vit import VisionTransformer

Precision = Literal["exact", "balanced"]  # float32 | bfloat16
Output = Literal["logits", "token", "mean", "grid"]
Value = Any  # a tensor inside whichever runtime builds or runs the graph
Pictures = NDArray[Any]  # uint8 or uint16, count x rows x cols x channels
Numbers = NDArray[np.float32]
EngineName = Literal["auto", "openvino", "torch", "onnxruntime"]
HOMES = {  # each has build(folded, card, job); those that can be saved have load(folder, card, job). Quickest first
    "openvino": "vitrail.engines.openvino_engine",
    "torch": "vitrail.engines.torch_engine",
    "onnxruntime": "vitrail.engines.onnx_engine",
}
ONLY_EXACT = ("onnxruntime",)  # on a CPU it has no bfloat16 kernels
FULL_SCALE = {8: 255, 16: 65535}  # the integer that means 1.0, by bits per channel


class Card(Frozen, frozen=True, kw_only=True):
    """What travels with a model beside its weights."""

    config: ViTConfig
    preprocess: Preprocess
    labels: tuple[str, ...]


class Job(Frozen, frozen=True, kw_only=True):
    """What an engine is to do. Two jobs that compare equal can share an engine."""

    precision: Precision = "exact"
    outputs: tuple[Output, ...] = ("logits",)
    size: Pair = (224, 224)  # rows and columns of every picture
    depth: Literal[8, 16] = 8  # bits per channel
    batch: int = 1  # how many pictures usually come at once; any number may
    threads: int = 1


class Asked(Frozen, frozen=True, kw_only=True):
    """What a caller wants of an engine; None leaves it to us."""

    engine: EngineName = "auto"
    precision: Precision | None = None
    outputs: tuple[Output, ...] = ("logits",)
    size: Pair | None = None
    depth: Literal[8, 16] = 8
    batch: int = 1
    threads: int = 1


@dataclass(frozen=True, slots=True)
class Outputs:
    """One row per picture; what was not asked for is None."""

    logits: Numbers | None = None  # pictures x classes
    token: Numbers | None = None  # pictures x dim: the class token after the last norm
    mean: Numbers | None = None  # pictures x dim: the patches' mean after the last norm
    grid: Numbers | None = None  # pictures x rows x cols x dim: the patches after the last norm


class Engine(Protocol):
    """One way of running one model. Safe to call from one thread at a time."""

    name: str
    card: Card
    job: Job

    def run(self, pictures: Pictures) -> Outputs:
        """Pictures (count x rows x cols x channels, as they come from the resize) to what the job asks for."""
        ...


@runtime_checkable
class Saveable(Engine, Protocol):
    """An engine that compiles something worth keeping."""

    def save(self, folder: Path) -> None:
        """Put files into an empty folder, for the engine's `load`."""
        ...


def check_pictures(pictures: Pictures, card: Card, job: Job) -> Pictures:
    """The pictures, contiguous; an error if the engine was not made for them."""
    expected = (*job.size, card.config.num_channels)
    dtype = np.dtype(f"uint{job.depth}")
    if pictures.ndim != 4 or pictures.shape[1:] != expected or pictures.dtype != dtype:
        raise UsageError(
            f"The pictures are {pictures.dtype}, {' x '.join(map(str, pictures.shape))}.",
            f"This engine takes {dtype}, count x {' x '.join(map(str, expected))} (rows, columns, channels).",
            "Resize with the model's own preprocessing, or open an engine for this size and depth.",
        )
    return np.ascontiguousarray(pictures)


def batches(pictures: Pictures, size: int) -> list[Pictures]:
    """So many pictures at a time. Of none, one blank picture: runtimes refuse to reshape nothing."""
    some = pictures if len(pictures) else np.zeros((1, *pictures.shape[1:]), pictures.dtype)
    return [some[start : start + size] for start in range(0, len(some), size)]


def outputs_of(named: dict[str, Numbers], card: Card, job: Job) -> Outputs:
    """A graph's results, with the patch grid in its two dimensions."""
    if "grid" in named:
        rows, cols = card.config.grid_for(job.size)
        named = named | {"grid": named["grid"].reshape(-1, rows, cols, named["grid"].shape[-1])}
    return Outputs(**named)


def card_of(model: VisionTransformer) -> Card:
    """What travels beside a model's weights."""
    return Card(config=model.config, preprocess=model.preprocess, labels=tuple(model.labels))


def cores() -> int:
    """Processor cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def extra(module: str, error: ImportError) -> EnvironmentProblem:
    """The error for a runtime that is not installed."""
    return EnvironmentProblem(
        f"{module} cannot be imported ({error}).",
        "It is one of the fast engines, which are an extra.",
        "pip install 'vitrail[fast]', or use --engine torch.",
    )
