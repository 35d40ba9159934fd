"""Whether an engine's answers are the model's: compared with torch in float32 on real pictures."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from vitrail.engines.base import FULL_SCALE, Engine, Job, Numbers, Outputs, Pictures, Precision
from vitrail.model.vit import VisionTransformer

LARGEST_ERROR = {"exact": 1e-3, "balanced": float("inf")}  # of a logit
LEAST_AGREEMENT = {"exact": 1.0, "balanced": 0.995}  # share of pictures with the same first class, ties left out
TIE = {"exact": 1e-4, "balanced": 1e-2}  # first and second class this near in probability: either is as good
LEAST_COSINE = {"exact": 0.999999, "balanced": 0.995}  # between two rows of outputs
SECONDS, FEWEST = 4.0, 8  # how long the reference may take, and how many pictures it answers whatever it takes


@dataclass(frozen=True)
class Reference:
    """Pictures and what torch in float32 makes of them."""

    pictures: Pictures
    outputs: Outputs


@dataclass(frozen=True)
class Agreement:
    """How far an engine is from the reference."""

    pictures: int
    same: int  # pictures with the same first class
    ties: int  # pictures with another, where float32 itself hardly prefers one
    error: float  # of a logit, at most
    cosine: float  # between rows of outputs, at least

    @property
    def finite(self) -> bool:
        """Whether there are any answers at all."""
        return self.error < float("inf") and self.cosine != 0.0

    def enough(self, precision: Precision) -> bool:
        """Whether this is what the precision promises."""
        return (
            self.error <= LARGEST_ERROR[precision]
            and self.same >= (self.pictures - self.ties) * LEAST_AGREEMENT[precision]
            and self.cosine >= LEAST_COSINE[precision]
        )

    def __str__(self) -> str:
        ties = f" ({self.ties} differ in a tie)" if self.ties else ""
        where = f"{self.same} of {self.pictures} pictures{ties}"
        return f"first class as in float32 on {where}, logits within {self.error:.1g}"


@torch.inference_mode()
def reference(model: VisionTransformer, job: Job, pictures: Pictures) -> Reference:
    """What the model itself answers, for as many of the pictures as there is time for."""
    rows: list[dict[str, Numbers]] = []
    parameter = next(model.parameters())
    start = time.perf_counter()
    for picture in pictures:
        if len(rows) >= FEWEST and time.perf_counter() - start > SECONDS:
            break
        images = normalised(picture[None], model, job).to(parameter)
        rows.append(answers(model, images, job))
    found = {name: np.concatenate([row[name] for row in rows]) for name in job.outputs}
    return Reference(pictures[: len(rows)], Outputs(**found))


def normalised(pictures: Pictures, model: VisionTransformer, job: Job) -> torch.Tensor:
    """Integer pictures as the model takes them."""
    mean, std = (torch.tensor(part).view(-1, 1, 1) for part in (model.preprocess.mean, model.preprocess.std))
    images = torch.from_numpy(pictures.astype(np.float32)).permute(0, 3, 1, 2) / FULL_SCALE[job.depth]
    return (images - mean) / std


def answers(model: VisionTransformer, images: torch.Tensor, job: Job) -> dict[str, Numbers]:
    """The job's outputs, by the model's own code."""
    found: dict[str, torch.Tensor] = {}
    if "logits" in job.outputs:
        found["logits"] = model(images)
    if set(job.outputs) - {"logits"}:
        tokens = model.features(images)
        patches = tokens[:, model.config.prefix_tokens :]
        rows, cols = model.config.grid_for(job.size)
        found |= {"token": tokens[:, 0], "mean": patches.mean(dim=1), "grid": patches.unflatten(1, (rows, cols))}
    return {name: found[name].float().cpu().numpy() for name in job.outputs}


def agreement(engine: Engine, expected: Reference) -> Agreement:
    """The engine against the reference, on the same pictures."""
    got, count = engine.run(expected.pictures), len(expected.pictures)
    same, ties, error = count, 0, 0.0
    if expected.outputs.logits is not None and got.logits is not None:
        differs = got.logits.argmax(axis=1) != expected.outputs.logits.argmax(axis=1)
        same = count - int(differs.sum())
        ties = int((differs & tied(expected.outputs.logits, TIE[engine.job.precision])).sum())
        error = float(np.nan_to_num(np.abs(got.logits - expected.outputs.logits), nan=np.inf).max())
    cosines = [least_cosine(getattr(got, name), getattr(expected.outputs, name)) for name in engine.job.outputs]
    return Agreement(count, same, ties, error, min(cosines))


def tied(logits: Numbers, nearest: float) -> NDArray[np.bool_]:
    """For which rows the first two classes are within so much probability of each other."""
    if logits.shape[1] < 2:
        return np.zeros(len(logits), bool)
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    first_two = np.sort(odds / odds.sum(axis=1, keepdims=True), axis=1)[:, -2:]
    return first_two[:, 1] - first_two[:, 0] < nearest  # type: ignore[no-any-return]


def least_cosine(got: Numbers, expected: Numbers) -> float:
    """The smallest cosine between two rows of numbers that should be alike; 0 where one is not finite."""
    a, b = (rows.reshape(-1, rows.shape[-1]).astype(np.float64) for rows in (got, expected))
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    cosines = np.where(lengths > 0, (a * b).sum(axis=1) / np.maximum(lengths, 1e-300), 1.0)
    return float(np.nan_to_num(cosines, nan=0.0).min())
