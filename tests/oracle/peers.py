"""timm and torchvision beside a CPU build of torch, for the tests marked `upstream`.

torchvision's wheel expects CUDA operators and stops at import without them; declaring their signatures first is
enough for everything a test needs (FACTS.md section 11).
"""

from __future__ import annotations

import warnings
from types import ModuleType

import pytest
import torch

SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
    "int sampling_ratio, bool aligned) -> Tensor",
)
_declared: list[torch.library.Library] = []  # the declarations last as long as this list


def peer(name: str) -> ModuleType:
    """The library, or a skip that says it is not installed."""
    if not _declared and not hasattr(torch.ops.torchvision, "nms"):
        library = torch.library.Library("torchvision", "FRAGMENT")
        for schema in SCHEMAS:
            library.define(schema)
        _declared.append(library)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(name, reason=f"needs {name} as a peer to compare with: make upstream")
