"""The whole model on one page.

    images -> stem -> grid -> tokens -> encoder -> head -> logits

Each stage is one attribute and one file: stem.py (or resnetv2.py for hybrids), tokens.py, encoder.py, heads.py.
"""

import warnings
from collections.abc import Sequence

import torch
from torch import nn

from vitrail.config import Preprocess, ViTConfig
from vitrail.errors import ConfigError
from vitrail.model.encoder import Encoder
from vitrail.model.heads import Head
from vitrail.model.init import initialize
from vitrail.model.probe import SILENT, Probe
from vitrail.model.shapes import Images, Kept, Logits, Tokens
from vitrail.model.stem import Stem
from vitrail.model.tokens import TokenEmbedding
from vitrail.verb import method


class VisionTransformer(nn.Module):
    """Images to logits in four stages. How to feed it and what its outputs mean travel with it."""

    def __init__(
        self, config: ViTConfig, preprocess: Preprocess | None = None, labels: Sequence[str] | None = None
    ) -> None:
        super().__init__()
        self.config = config
        self.preprocess = preprocess or default_preprocess(config)
        self.labels = check_labels(labels, config) or [str(index) for index in range(config.num_classes)]
        self.stem = Stem(config)  # images -> grid
        self.tokens = TokenEmbedding(config)  # grid -> tokens
        self.encoder = Encoder(config)  # tokens -> tokens
        self.head = Head(config)  # tokens -> logits

    def forward(self, images: Images, probe: Probe = SILENT) -> Logits:
        """Normalised images in, one number per class out. A probe looks inside on the way."""
        return self.head(self.encode(images, probe, keep=self.head.reads), probe)

    def features(self, images: Images, probe: Probe = SILENT) -> Tokens:
        """Every token after the final norm: prefix tokens first, then patches row by row."""
        return self.encode(images, probe, keep=None)

    predict = method("vitrail.predict.predict")  # pictures to classes: model.predict("cat.jpg")
    embed = method("vitrail.embed.embed")  # pictures to features

    def encode(self, images: Images, probe: Probe, keep: int | None) -> Kept:
        grid = self.stem(images, probe)
        return self.encoder(self.tokens(grid, probe), (grid.shape[2], grid.shape[3]), probe, keep)


def build_empty(config: ViTConfig) -> VisionTransformer:
    """The model with every parameter declared and none allocated."""
    with torch.device("meta"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Initializing zero-element tensors")  # a layer may have lost all its heads
        return VisionTransformer(config)


def create(config: ViTConfig, seed: int | None = None) -> VisionTransformer:
    """The model with fresh weights (init.py), ready to evaluate."""
    model = build_empty(config).to_empty(device="cpu").eval()
    initialize(model, seed)
    return model


def check_labels(labels: Sequence[str] | None, config: ViTConfig) -> list[str]:
    """One name per class, or none at all."""
    if labels and len(labels) != config.num_classes:
        raise ConfigError(f"There are {len(labels)} labels.", f"The model has {config.num_classes} classes.", "")
    return list(labels or [])


def default_preprocess(config: ViTConfig) -> Preprocess:
    """Google's: squashed to size, scaled to [-1, 1], for any number of channels."""
    half = (0.5,) * config.num_channels
    return Preprocess(size=config.image_size, resize=config.image_size, mean=half, std=half)
