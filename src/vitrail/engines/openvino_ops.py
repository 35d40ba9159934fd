"""The graph's vocabulary, spoken by OpenVINO: every word adds a node to a graph for one picture at a time.

Written for how the CPU plugin picks its kernels (measured on an AVX-512 machine, docs/experiments.md): a linear layer
over tokens is a 1 x 1 convolution over a picture that is one row of tokens, channels last. The reshapes move nothing,
and in bfloat16 its kernels beat the matrix product's by 3 to 24%; in float32 they are equal.
"""

# ruff: noqa: D102 -- the words are explained in graph.py

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vitrail.config import Pair
from vitrail.engines import folded as f
from vitrail.engines.graph import Pads
from vitrail.engines.openvino_runtime import runtime

Node = Any
FEW_TOKENS = 8  # fewer rows than this do not fill a convolution kernel
LARGE = 4096  # arrays of at least so many numbers are stored in 16 bits where the arithmetic is


class OpenVinoOps:
    """Builds with float32 constants, or with large ones rounded to bfloat16, as the plugin would at load."""

    def __init__(self, half: bool) -> None:
        self.half = half
        self.ov = runtime()
        self.op = self.ov.opset15

    def constant(self, array: f.Array | Node) -> Node:
        if not isinstance(array, np.ndarray):
            return array
        if not self.half or array.size < LARGE:
            return self.op.constant(array)
        wide = self.op.convert(self.op.constant(to_bfloat16(array), dtype=self.ov.Type.bf16), "f32")
        wide.get_rt_info()["decompression_0"] = ""  # keeps the plugin from storing it as float32 again
        return wide

    def ints(self, *values: int) -> Node:
        return self.op.constant(np.array(values, np.int64))

    def images(self, pictures: Node, centre: f.Array) -> Node:
        x = self.op.convert(self.op.transpose(pictures, self.ints(0, 3, 1, 2)), "f32")
        return self.op.subtract(x, self.op.constant(centre.reshape(1, -1, 1, 1)))

    def conv(self, x: Node, kernel: f.Array, stride: Pair, pads: Pads) -> Node:
        (top, bottom), (left, right) = pads
        return self.op.convolution(x, self.constant(kernel), [*stride], [top, left], [bottom, right], [1, 1])

    def group_norm(self, x: Node, groups: int, eps: float, norm: f.Affine) -> Node:
        # Not the group_normalization op: the CPU plugin (2026.4) crashes on it beside a residual connection.
        shape = shape_of(x)
        flat = self.op.reshape(x, self.ints(shape[0], groups, -1), special_zero=False)
        spread = self.op.mvn(flat, self.ints(-1), True, eps, "inside_sqrt")
        whole = self.op.reshape(spread, self.ints(*shape), special_zero=False)
        scale, shift = (self.op.constant(part.reshape(1, -1, 1, 1)) for part in (norm.scale, norm.shift))
        return self.op.add(self.op.multiply(whole, scale), shift)

    def max_pool(self, x: Node, pads: Pads) -> Node:
        (top, bottom), (left, right) = pads
        pooled = self.op.max_pool(x, [2, 2], [1, 1], [top, left], [bottom, right], [3, 3], "floor", "explicit")
        return pooled.output(0)

    def relu(self, x: Node) -> Node:
        return self.op.relu(x)

    def strung(self, grid: Node) -> Node:
        flat = self.op.reshape(grid, self.ints(0, 0, -1), special_zero=True)
        return self.op.transpose(flat, self.ints(0, 2, 1))

    def placed(self, patches: Node, table: f.Array, before: int) -> Node:
        if before:
            zero = self.op.constant(np.float32(0))
            patches = self.op.pad(patches, self.ints(0, before, 0), self.ints(0, 0, 0), "constant", zero)
        return self.op.add(patches, self.op.constant(table[None]))

    def linear(self, x: Node, layer: f.Linear) -> Node:
        shape = shape_of(x)
        if len(shape) != 3 or shape[1] < FEW_TOKENS:
            y = self.op.matmul(x, self.constant(layer.weight), False, True)
            return self.bent(self.biased(y, layer.bias, (-1,)), layer.act)
        outputs, inputs = layer.weight.shape
        row = self.op.transpose(self.op.reshape(x, self.ints(1, 1, shape[1], inputs), False), self.ints(0, 3, 1, 2))
        y = self.op.convolution(row, self.constant(layer.weight[:, :, None, None]), [1, 1], [0, 0], [0, 0], [1, 1])
        y = self.bent(self.biased(y, layer.bias, (1, -1, 1, 1)), layer.act)
        return self.op.reshape(self.op.transpose(y, self.ints(0, 2, 3, 1)), self.ints(1, shape[1], outputs), False)

    def biased(self, x: Node, bias: f.Array | None, shape: tuple[int, ...]) -> Node:
        return x if bias is None else self.op.add(x, self.op.constant(bias.reshape(shape)))

    def bent(self, x: Node, act: str | None) -> Node:
        if act in ("gelu", "gelu_tanh"):
            return self.op.gelu(x, "ERF" if act == "gelu" else "TANH")
        if act == "quick_gelu":
            return self.op.swish(x, self.op.constant(np.float32(1.702)))
        return {None: lambda x: x, "silu": self.op.swish, "relu": self.op.relu, "tanh": self.op.tanh}[act](x)

    def normalised(self, x: Node, norm: f.Norm) -> Node:
        return self.op.mvn(x, self.ints(-1), True, norm.eps, "inside_sqrt")

    def affine(self, x: Node, norm: f.Affine) -> Node:
        return self.op.add(self.op.multiply(x, self.op.constant(norm.scale)), self.op.constant(norm.shift))

    def add(self, x: Node, y: Node | f.Array) -> Node:
        return self.op.add(x, self.op.constant(y) if isinstance(y, np.ndarray) else y)

    def multiply(self, x: Node, y: Node) -> Node:
        return self.op.multiply(x, y)

    def heads(self, x: Node, count: int) -> Node:
        split = self.op.reshape(x, self.ints(0, 0, count, -1), special_zero=True)
        return self.op.transpose(split, self.ints(0, 2, 1, 3))

    def merged(self, x: Node) -> Node:
        return self.op.reshape(self.op.transpose(x, self.ints(0, 2, 1, 3)), self.ints(0, 0, -1), special_zero=True)

    def turned(self, x: Node, cos: f.Array, sin: f.Array) -> Node:
        first, second = self.op.split(x, self.op.constant(np.int64(-1)), 2).outputs()
        across = self.op.concat([self.op.negative(second), first], -1)
        return self.op.add(self.op.multiply(x, self.op.constant(cos)), self.op.multiply(across, self.op.constant(sin)))

    def attend(self, q: Node, k: Node, v: Node) -> Node:
        return self.merged(self.matmul(self.softmax(self.matmul(q, k, transposed=True)), v))

    def matmul(self, x: Node | f.Array, y: Node | f.Array, transposed: bool = False) -> Node:
        return self.op.matmul(self.constant(x), self.constant(y), False, transposed)

    def softmax(self, x: Node) -> Node:
        return self.op.softmax(x, -1)

    def reshape(self, x: Node, shape: Sequence[int]) -> Node:
        return self.op.reshape(x, self.ints(0, *shape), special_zero=True)

    def rows(self, x: Node, start: int, stop: int | None) -> Node:
        end = shape_of(x)[1] if stop is None else stop
        return self.op.slice(x, self.ints(start), self.ints(end), self.ints(1), self.ints(1))

    def mean(self, x: Node) -> Node:
        return self.op.reduce_mean(x, self.ints(1), False)

    def concat(self, x: Node, y: Node) -> Node:
        return self.op.concat([x, y], -1)


def shape_of(node: Node) -> list[int]:
    """A node's shape; every axis is known."""
    output = node if hasattr(node, "get_node") else node.output(0)
    return list(output.get_shape())


def to_bfloat16(array: f.Array) -> f.Array:
    """Float32 numbers rounded to the nearest that bfloat16 has, ties to even; OpenVINO's own conversion cuts off."""
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(np.float32)
