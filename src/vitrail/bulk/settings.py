"""How pictures are read and how the model is run, where a verb has no flag for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from vitrail.checks import check_fields, require
from vitrail.config import Frozen
from vitrail.engines.base import EngineName, Precision
from vitrail.images.decode import Decoding
from vitrail.images.reading import PREDICTING, Limits

BATCH = 16


class PictureConfig(Frozen, frozen=True, kw_only=True):
    """How files become pixels."""

    workers: int = 0  # threads that read pictures ahead; 0: one per processor. Never changes a result
    depth: Literal[8, 16] = 8  # bits kept of every channel
    background: Literal["white", "black"] = "white"  # under transparent pixels
    profiles: bool = True  # colours to sRGB by the ICC profile; torchvision and timm do not
    truncated: Literal["error", "load"] = "error"  # load: answer for what arrived of a picture, and note it
    scaled: bool = False  # decode large JPEGs at a fraction of their size: faster, up to a few levels different
    max_pixels: int = PREDICTING.pixels
    max_side: int = PREDICTING.side
    max_bytes: int = PREDICTING.file_bytes  # of a file

    def __post_init__(self) -> None:
        check_fields(self)
        require(self, "workers", lambda value: value >= 0, "0 or more")
        for field in ("max_pixels", "max_side", "max_bytes"):
            require(self, field, lambda value: value >= 1, "1 or more")

    @property
    def decoding(self) -> Decoding:
        """The same, for the decoder."""
        return Decoding(
            limits=Limits(pixels=self.max_pixels, side=self.max_side, file_bytes=self.max_bytes),
            background=self.background,
            profiles=self.profiles,
            truncated=self.truncated,
            scaled=self.scaled,
        )


class EngineConfig(Frozen, frozen=True, kw_only=True):
    """What runs the model."""

    name: EngineName = "auto"  # auto: the quickest here whose answers are the model's own
    precision: Precision | None = None  # None: balanced (bfloat16) where the hardware has it, else exact
    batch_size: int = BATCH
    threads: int = 0  # 0: one per processor

    def __post_init__(self) -> None:
        check_fields(self)
        require(self, "batch_size", lambda value: value >= 1, "1 or more")
        require(self, "threads", lambda value: value >= 0, "0 or more")


SECTIONS: Mapping[str, type[Frozen]] = {"data": PictureConfig, "engine": EngineConfig}
