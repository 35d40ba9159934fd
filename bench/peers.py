"""The peers, as test-only oracles: timm and torchvision need three operator schemas beside a CPU torch."""

from __future__ import annotations

import importlib
from types import ModuleType

import torch

# torchvision's released builds are linked to CUDA and look these up at import; kept alive as long as the process.
_SCHEMAS = torch.library.Library("torchvision", "FRAGMENT")
for _name in ("nms", "qnms"):
    _SCHEMAS.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
_SCHEMAS.define(
    "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
    "int sampling_ratio, bool aligned) -> Tensor"
)


def peer(name: str) -> ModuleType:
    """timm, torchvision or transformers, imported."""
    return importlib.import_module(name)
