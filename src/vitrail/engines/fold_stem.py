"""Folding of the stem: normalisation goes into the first kernel, standardised kernels are computed once."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from vitrail.config import Pair
from vitrail.engines import folded as f
from vitrail.model.resnetv2 import Bottleneck, ResNetV2, StandardizedConv
from vitrail.model.vit import VisionTransformer

Doubles = NDArray[np.float64]
Pads = tuple[Pair, Pair]


def fold_stem(model: VisionTransformer, size: Pair, full_scale: int) -> tuple[f.Stem, Doubles]:
    """The stem for integer pixels, and the bias it leaves to whoever adds the positions."""
    mean, std = (np.asarray(values, np.float64) for values in (model.preprocess.mean, model.preprocess.std))
    kernel, bias = numbers(model.stem.proj.weight), model.stem.proj.bias
    shift = np.zeros(len(kernel)) if bias is None else numbers(bias)
    if model.stem.resnet is not None:  # zeros beyond the edge stand for the mean colour: all of it has to go first
        resnet = fold_resnet(model.stem.resnet, size, std * full_scale)
        return f.Stem(mean * full_scale, resnet, kernel), shift
    # An integer below 256 is exact in bfloat16, and so is its difference from another; the rest goes into the bias.
    kernel, centre = kernel / (std * full_scale)[:, None, None], np.rint(mean * full_scale)
    return f.Stem(centre, None, kernel), shift + (kernel.sum(axis=(2, 3)) * (centre - mean * full_scale)).sum(axis=1)


def fold_resnet(resnet: ResNetV2, size: Pair, scale: Doubles) -> f.ResNet:
    """The convolutional stem for pictures of one size: kernels standardised, paddings as numbers."""
    root, size = fold_conv(resnet.root, resnet.root_norm, size)
    root = f.Conv(root.kernel / scale[:, None, None], root.stride, root.pads, root.groups, root.eps, root.norm)
    same = resnet.config.padding == "same"
    pool_pads = padding(size, 3, 2) if same else ((0, 0), (0, 0))
    size = after(size, 3, 2, pool_pads)
    units = []
    for unit in (unit for stage in resnet.stages for unit in stage):  # type: ignore[attr-defined]  # a Sequential
        folded, size = fold_unit(unit, size)
        units.append(folded)
    return f.ResNet(root, pool_pads, tuple(units))


def fold_unit(unit: Bottleneck, size: Pair) -> tuple[f.Unit, Pair]:
    """One bottleneck, and the size of what it puts out."""
    shortcut = None
    if isinstance(unit.conv_proj, StandardizedConv):
        shortcut, _ = fold_conv(unit.conv_proj, unit.norm_proj, size)
    first, size = fold_conv(unit.conv1, unit.norm1, size)
    second, size = fold_conv(unit.conv2, unit.norm2, size)
    third, size = fold_conv(unit.conv3, unit.norm3, size)
    return f.Unit((first, second, third), shortcut), size


def fold_conv(conv: StandardizedConv, norm: nn.Module, size: Pair) -> tuple[f.Conv, Pair]:
    """One convolution and its norm, and the size of what it puts out."""
    assert isinstance(norm, nn.GroupNorm)
    kernel, stride = conv.kernel_size[0], conv.stride[0]
    fixed = (kernel - 1) // 2
    pads = padding(size, kernel, stride) if conv.config.padding == "same" else ((fixed, fixed), (fixed, fixed))
    affine = f.Affine(numbers(norm.weight), numbers(norm.bias))
    folded = f.Conv(numbers(conv.standardized()), stride, pads, norm.num_groups, norm.eps, affine)
    return folded, after(size, kernel, stride, pads)


def padding(size: Pair, kernel: int, stride: int) -> Pads:
    """TensorFlow's SAME, as numbers: before and after, for rows and columns."""
    totals = [max((-(-pixels // stride) - 1) * stride + kernel - pixels, 0) for pixels in size]
    (top, left), (bottom, right) = ([total // 2 for total in totals], [total - total // 2 for total in totals])
    return (top, bottom), (left, right)


def after(size: Pair, kernel: int, stride: int, pads: Pads) -> Pair:
    """Rows and columns a convolution puts out."""
    rows, cols = ((pixels + sum(pad) - kernel) // stride + 1 for pixels, pad in zip(size, pads, strict=True))
    return rows, cols


def numbers(tensor: torch.Tensor) -> Doubles:
    """A parameter in float64."""
    return tensor.detach().cpu().double().numpy()
