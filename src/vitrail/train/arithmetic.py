"""How numbers are computed while training: which format, on which device. The weights that learn stay in 32 bits.

In 16 bits every weight is rounded once per portion and everything between the layers is 16 bits too. On CPUs that is
faster than autocast alone, which would carry 32-bit tokens from block to block (bench/RESULTS.md, training). The
convolutional stem is left to autocast, because its kernels are standardised before use.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import functional_call

from vitrail.errors import EnvironmentProblem
from vitrail.model.probe import SILENT, Probe
from vitrail.model.vit import VisionTransformer
from vitrail.train.config import Precision
from vitrail.train.distributed import ALONE, World, own_device

FORMATS: dict[Precision, torch.dtype] = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Arithmetic:
    """A device and a number format; None computes in 32 bits."""

    device: torch.device
    dtype: torch.dtype | None = None

    @property
    def name(self) -> Precision:
        """As the config spells it."""
        return next((name for name, dtype in FORMATS.items() if dtype == self.dtype), "fp32")

    def logits(
        self, model: VisionTransformer, weights: Mapping[str, Tensor], images: Tensor, probe: Probe = SILENT
    ) -> Tensor:
        """What the model says with these weights, in 32 bits."""
        images = images.to(self.device, self.dtype, non_blocking=True)
        with self.autocast():
            logits: Tensor = functional_call(model, self.rounded(weights), (images, probe), strict=True)
        return logits.float()

    def rounded(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The weights as they are multiplied."""
        if self.dtype is None:
            return dict(weights)
        return {name: w if name.startswith("stem.resnet.") else w.to(self.dtype) for name, w in weights.items()}

    def autocast(self) -> AbstractContextManager[object]:
        """The context that picks formats where a layer's own weights do not say."""
        return torch.autocast(self.device.type, self.dtype) if self.dtype else nullcontext()


def arithmetic_for(precision: Precision, device: str = "auto", world: World = ALONE) -> Arithmetic:
    """What was asked for, or what this machine does best."""
    place = torch.device(device if device != "auto" else "cuda" if torch.cuda.is_available() else "cpu")
    place = own_device(place, world)
    if precision == "auto":
        precision = "bf16" if has_bfloat16(place) else "fp32"
    if precision == "fp16" and place.type == "cpu":
        raise EnvironmentProblem(
            "fp16 was asked for on a CPU.", "fp16 trains on GPUs only.", "Use train.precision=bf16, or auto."
        )
    return Arithmetic(place, FORMATS.get(precision))


def has_bfloat16(device: torch.device) -> bool:
    """Whether bfloat16 is faster than 32 bits there, not merely possible."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return device.type == "cpu" and bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
