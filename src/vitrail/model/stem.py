"""Images to a grid of patch features. A stem declares its grid by arithmetic, in the config."""

from torch import Tensor, nn

from vitrail.config import ViTConfig
from vitrail.errors import UsageError
from vitrail.model.probe import SILENT, Probe
from vitrail.model.resnetv2 import ResNetV2
from vitrail.model.shapes import Grid, Images


class Stem(nn.Module):
    """One linear map per patch, done as a convolution; in a hybrid, over the maps of a ResNet."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.config = config
        self.resnet = ResNetV2(config.resnet, config.num_channels) if config.resnet else None
        channels = config.resnet.channels if config.resnet else config.num_channels
        self.proj = nn.Conv2d(
            channels, config.hidden_size, config.patch_size, stride=config.patch_size, bias=config.patch_bias
        )

    def forward(self, images: Images, probe: Probe = SILENT) -> Grid:
        """Non-overlapping patches, each projected to `dim` numbers."""
        check_images(images, self.config.num_channels)
        self.config.grid_for((images.shape[2], images.shape[3]))  # refuses sizes that do not divide
        probe.take("images", images)
        features = self.resnet(images, probe) if self.resnet else images
        return probe.take("stem.out", self.proj(features))


def check_images(images: Tensor, channels: int) -> None:
    """Refuse what is no batch of normalised pictures for this model, before torch says so in its own words."""
    if images.dim() != 4 or images.shape[1] != channels or not images.is_floating_point():
        raise UsageError(
            f"The model was given {images.dtype} of shape {tuple(images.shape)}.",
            f"Normalised images: float, batch x {channels} x height x width.",
            "Use `model.preprocess` (vitrail.images.normalise) on pictures, and a batch of one for one picture.",
        )
