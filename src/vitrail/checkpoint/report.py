"""What a checkpoint turned out to be, as a record that prints and goes into JSON."""

from __future__ import annotations

from typing import Any

import msgspec

from vitrail.config import Pair, Preprocess


class Report(msgspec.Struct, kw_only=True):
    """Where a model came from and everything that was found, assumed and changed on the way."""

    path: str
    origin: str  # google | huggingface | timm | torchvision | jeonsworld | vitrail | the name of a user's rules
    table: str  # the rows that read it
    prefix: str = ""
    variant: str | None = None  # B/16, R50+L/32; None where the sizes have no name
    architecture: str = ""
    dtype: str = "float32"  # as stored; several joined by +
    tensors: int = 0
    parameters: int = 0
    image_size: Pair = (0, 0)
    patch_size: Pair = (0, 0)
    grid: Pair = (0, 0)  # of the position table
    prefix_tokens: list[str] = []
    conventions: dict[str, Any] = {}
    config: dict[str, Any] = {}
    preprocess: Preprocess | None = None
    labels: list[str] = []
    assumptions: list[str] = []
    adaptations: list[str] = []
    kept: list[str] = []  # tensors our model does not use, written back where the format has a place for them
    ignored: dict[str, str] = {}  # keys that are no part of a model, with what they are
    problems: list[str] = []


class Difference(msgspec.Struct, kw_only=True):
    """One thing that is not the same on both sides."""

    what: str
    why: str = ""


class ConversionReport(msgspec.Struct, kw_only=True):
    """What a conversion did and how it was proved."""

    source: Report
    result: Report
    format: str
    files: list[str]
    tensors_equal: bool  # every tensor of the source came back bit for bit from the result
    tensors_compared: int = 0
    logits_difference: dict[str, float] = {}  # largest absolute difference, by picture
    native_logits_difference: dict[str, float] = {}  # the same, as the target's own software computes
    deviations: list[str] = []  # numbers the target's own software computes otherwise
    dropped: list[str] = []  # what the target could not hold (--lossy), or tensors nothing uses
    lossy: bool = False
