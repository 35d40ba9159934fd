"""The hybrid's stem: a ResNetV2 as in Big Transfer, with standardised weights and group norm.

Follows google-research/vision_transformer, models_resnet.py. The ports of the same weights differ in four
numeric details; each is a field of `ResNetStem`, and each file keeps its own.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.config import ResNetStem
from vitrail.model.probe import SILENT, Probe
from vitrail.model.shapes import Features, Images


class ResNetV2(nn.Module):
    """Root (7x7 convolution, 3x3 pool, each of stride 2), then stages of bottleneck units."""

    def __init__(self, config: ResNetStem, num_channels: int) -> None:
        super().__init__()
        self.config = config
        self.root = StandardizedConv(config, num_channels, config.width, 7, stride=2)
        self.root_norm = group_norm(config, config.width)
        self.stages = nn.ModuleList()
        channels = config.width
        for stage, units in enumerate(config.layers):
            out = config.width * 4 * 2**stage
            first = Bottleneck(config, channels, out, stride=1 if stage == 0 else 2, project=True)
            rest = [Bottleneck(config, out, out, stride=1, project=False) for _ in range(units - 1)]
            self.stages.append(nn.Sequential(first, *rest))
            channels = out

    def forward(self, images: Images, probe: Probe = SILENT) -> Features:
        x = probe.take("stem.root", self.root(images))
        x = F.relu(self.root_norm(x))
        if self.config.padding == "same":
            x = pad_same(x, 3, 2, value=float("-inf"))
        x = probe.take("stem.pool", F.max_pool2d(x, 3, stride=2))
        for index, stage in enumerate(self.stages):
            x = probe.take(f"stem.stages.{index}", stage(x))
        return x


class Bottleneck(nn.Module):
    """1x1, 3x3 (which carries the stride), 1x1; the first unit of a stage projects its shortcut."""

    def __init__(self, config: ResNetStem, channels: int, out: int, stride: int, project: bool) -> None:
        super().__init__()
        middle = out // 4
        self.conv1, self.norm1 = StandardizedConv(config, channels, middle, 1), group_norm(config, middle)
        self.conv2 = StandardizedConv(config, middle, middle, 3, stride=stride)
        self.norm2 = group_norm(config, middle)
        self.conv3, self.norm3 = StandardizedConv(config, middle, out, 1), group_norm(config, out)
        self.conv_proj = StandardizedConv(config, channels, out, 1, stride=stride) if project else nn.Identity()
        self.norm_proj = shortcut_norm(config, out) if project else nn.Identity()

    def forward(self, x: Features) -> Features:
        shortcut = self.norm_proj(self.conv_proj(x))
        x = F.relu(self.norm1(self.conv1(x)))
        x = F.relu(self.norm2(self.conv2(x)))
        return F.relu(shortcut + self.norm3(self.conv3(x)))


class StandardizedConv(nn.Conv2d):
    """A convolution whose kernel is brought to zero mean and unit variance per output channel before use."""

    def __init__(self, config: ResNetStem, channels: int, out: int, kernel: int, stride: int = 1) -> None:
        symmetric = 0 if config.padding == "same" else (kernel - 1) // 2
        super().__init__(channels, out, kernel, stride=stride, padding=symmetric, bias=False)
        self.config = config

    def forward(self, x: Features) -> Features:
        if self.config.padding == "same":
            x = pad_same(x, self.kernel_size[0], self.stride[0])
        return self._conv_forward(x, self.standardized(), None)

    def standardized(self) -> Tensor:
        """The kernel that is actually used. Population variance, as in Google's and both ports."""
        variance, mean = torch.var_mean(self.weight, dim=(1, 2, 3), correction=0, keepdim=True)
        eps = self.config.standardization_eps
        if self.config.standardization == "std_plus":
            return (self.weight - mean) / (variance.sqrt() + eps)
        return (self.weight - mean) * torch.rsqrt(variance + eps)


def pad_same(x: Features, kernel: int, stride: int, value: float = 0.0) -> Features:
    """TensorFlow's SAME: just enough padding for ceil(size / stride) outputs, the odd cell at the far side."""
    (top, bottom), (left, right) = (_same(size, kernel, stride) for size in x.shape[-2:])
    return F.pad(x, (left, right, top, bottom), value=value) if top + bottom + left + right else x


def _same(size: int, kernel: int, stride: int) -> tuple[int, int]:
    total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2


def group_norm(config: ResNetStem, channels: int) -> nn.GroupNorm:
    """32 groups, as everywhere in this stem."""
    return nn.GroupNorm(32, channels, eps=config.group_norm_eps)


def shortcut_norm(config: ResNetStem, channels: int) -> nn.GroupNorm:
    """The projected shortcut's norm. jeonsworld's has one group per channel and eps 1e-5."""
    if config.shortcut_groups == "per_channel":
        return nn.GroupNorm(channels, channels, eps=1e-5)
    return group_norm(config, channels)
