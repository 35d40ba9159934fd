"""The graph's vocabulary, spoken by torch: every word is done at once, on tensors."""

# ruff: noqa: D102 -- the words are explained in graph.py

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.config import Pair
from vitrail.engines import folded as f
from vitrail.engines.graph import Pads
from vitrail.model.encoder import images_per_slice
from vitrail.model.mlp import ACTIVATIONS

ACTS: dict[Any, Callable[[Tensor], Tensor]] = {None: lambda x: x, "tanh": torch.tanh, **ACTIVATIONS}


class TorchOps:
    """Runs on whatever device and in whatever precision the arrays of the model have."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype

    def images(self, pictures: Tensor, centre: Tensor) -> Tensor:
        return (pictures.to(centre.dtype) - centre).permute(0, 3, 1, 2).to(self.dtype)

    def conv(self, x: Tensor, kernel: Tensor, stride: Pair, pads: Pads) -> Tensor:
        return F.conv2d(F.pad(x, (*pads[1], *pads[0])), kernel, stride=stride)

    def group_norm(self, x: Tensor, groups: int, eps: float, norm: f.Affine) -> Tensor:
        return F.group_norm(x, groups, norm.scale, norm.shift, eps)

    def max_pool(self, x: Tensor, pads: Pads) -> Tensor:
        return F.max_pool2d(F.pad(x, (*pads[1], *pads[0]), value=float("-inf")), 3, stride=2)

    def relu(self, x: Tensor) -> Tensor:
        return F.relu(x)

    def strung(self, grid: Tensor) -> Tensor:
        return grid.flatten(2).transpose(1, 2)

    def placed(self, patches: Tensor, table: Tensor, before: int) -> Tensor:
        return F.pad(patches, (0, 0, before, 0)) + table

    def linear(self, x: Tensor, layer: f.Linear) -> Tensor:
        act = ACTS[layer.act]
        if layer.weight.is_mkldnn:
            return act(F.linear(x.contiguous().to_mkldnn(), layer.weight, layer.bias).to_dense())
        return act(F.linear(x, layer.weight, layer.bias))

    def normalised(self, x: Tensor, norm: f.Norm) -> Tensor:
        return F.layer_norm(x, (norm.width,), eps=norm.eps)

    def affine(self, x: Tensor, norm: f.Affine) -> Tensor:
        return torch.addcmul(norm.shift, x, norm.scale)

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y

    def multiply(self, x: Tensor, y: Tensor) -> Tensor:
        return x * y

    def heads(self, x: Tensor, count: int) -> Tensor:
        return x.reshape(*x.shape[:2], count, -1).transpose(1, 2)

    def merged(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2).flatten(2)

    def turned(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        first, second = x.chunk(2, dim=-1)
        return x * cos + torch.cat([-second, first], dim=-1) * sin

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        images = images_per_slice(q, k)
        if not images:
            return self.merged(F.scaled_dot_product_attention(q, k, v, scale=1.0))
        slices = zip(q.split(images), k.split(images), v.split(images), strict=True)
        return self.merged(torch.cat([(q @ k.transpose(-2, -1)).softmax(dim=-1) @ v for q, k, v in slices]))

    def matmul(self, x: Tensor, y: Tensor, transposed: bool = False) -> Tensor:
        return x @ (y.transpose(-2, -1) if transposed else y)

    def softmax(self, x: Tensor) -> Tensor:
        return x.softmax(dim=-1)

    def reshape(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        return x.reshape(len(x), *shape)

    def rows(self, x: Tensor, start: int, stop: int | None) -> Tensor:
        return x[:, start:stop]

    def mean(self, x: Tensor) -> Tensor:
        return x.mean(dim=1)

    def concat(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.cat([x, y], dim=-1)
