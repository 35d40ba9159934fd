"""The graph's vocabulary, spoken by ONNX: every word appends a node to a graph for any number of pictures.

Only standard operators (opset 20), so the same graph is what an export needs.
"""

# ruff: noqa: D102 -- the words are explained in graph.py

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vitrail.config import Pair
from vitrail.engines import folded as f
from vitrail.engines.base import extra
from vitrail.engines.graph import Pads

OPSET = 20  # the first with Gelu
IR_VERSION = 9  # of the same release
END = 2**62  # of an axis, however long


def onnx() -> Any:
    """The onnx module."""
    try:
        import onnx
    except ImportError as error:
        raise extra("onnx", error) from error
    return onnx


@dataclass
class OnnxOps:
    """Collects nodes and constants. A value is the name of what a node puts out."""

    nodes: list[Any] = field(default_factory=list)
    constants: dict[str, f.Array] = field(default_factory=dict)

    def node(self, kind: str, *inputs: str | f.Array, **attributes: Any) -> str:
        """Append a node; arrays among the inputs become constants."""
        name = f"{kind}_{len(self.nodes)}"
        names = [value if isinstance(value, str) else self.constant(value) for value in inputs]
        self.nodes.append(onnx().helper.make_node(kind, names, [name], name=name, **attributes))
        return name

    def constant(self, array: f.Array) -> str:
        name = f"constant_{len(self.constants)}"
        self.constants[name] = np.ascontiguousarray(array)
        return name

    def images(self, pictures: str, centre: f.Array) -> str:
        wide = self.node("Cast", pictures, to=onnx().TensorProto.FLOAT)
        return self.node("Transpose", self.node("Sub", wide, centre), perm=[0, 3, 1, 2])

    def conv(self, x: str, kernel: f.Array, stride: Pair, pads: Pads) -> str:
        (top, bottom), (left, right) = pads
        return self.node("Conv", x, kernel, strides=[*stride], pads=[top, left, bottom, right])

    def group_norm(self, x: str, groups: int, eps: float, norm: f.Affine) -> str:
        # An instance norm of whole groups: opset 20 scales by group, where the model has a scale per channel.
        still = np.ones(groups, np.float32), np.zeros(groups, np.float32)
        spread = self.node("InstanceNormalization", self.node("Reshape", x, ints(0, groups, -1)), *still, epsilon=eps)
        whole = self.node("Reshape", spread, self.node("Shape", x))
        return self.affine(whole, f.Affine(norm.scale.reshape(1, -1, 1, 1), norm.shift.reshape(1, -1, 1, 1)))

    def max_pool(self, x: str, pads: Pads) -> str:
        (top, bottom), (left, right) = pads
        return self.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[top, left, bottom, right])

    def relu(self, x: str) -> str:
        return self.node("Relu", x)

    def strung(self, grid: str) -> str:
        return self.node("Transpose", self.node("Reshape", grid, ints(0, 0, -1)), perm=[0, 2, 1])

    def placed(self, patches: str, table: f.Array, before: int) -> str:
        patches = self.node("Pad", patches, ints(0, before, 0, 0, 0, 0)) if before else patches
        return self.node("Add", patches, table)

    def linear(self, x: str, layer: f.Linear) -> str:
        y = self.node("MatMul", x, layer.weight.T)
        y = y if layer.bias is None else self.node("Add", y, layer.bias)
        return self.bent(y, layer.act)

    def bent(self, x: str, act: str | None) -> str:
        if act in ("gelu", "gelu_tanh"):
            return self.node("Gelu", x, approximate="none" if act == "gelu" else "tanh")
        if act in ("silu", "quick_gelu"):
            steep = x if act == "silu" else self.node("Mul", x, np.float32(1.702))
            return self.node("Mul", x, self.node("Sigmoid", steep))
        return x if act is None else self.node({"relu": "Relu", "tanh": "Tanh"}[act], x)

    def normalised(self, x: str, norm: f.Norm) -> str:
        return self.node("LayerNormalization", x, np.ones(norm.width, np.float32), axis=-1, epsilon=norm.eps)

    def affine(self, x: str, norm: f.Affine) -> str:
        return self.node("Add", self.node("Mul", x, norm.scale), norm.shift)

    def add(self, x: str, y: str | f.Array) -> str:
        return self.node("Add", x, y)

    def multiply(self, x: str, y: str) -> str:
        return self.node("Mul", x, y)

    def heads(self, x: str, count: int) -> str:
        return self.node("Transpose", self.node("Reshape", x, ints(0, 0, count, -1)), perm=[0, 2, 1, 3])

    def merged(self, x: str) -> str:
        return self.node("Reshape", self.node("Transpose", x, perm=[0, 2, 1, 3]), ints(0, 0, -1))

    def turned(self, x: str, cos: f.Array, sin: f.Array) -> str:
        half = cos.shape[1] // 2
        first, second = self.sliced(x, 0, half, axis=-1), self.sliced(x, half, END, axis=-1)
        across = self.node("Concat", self.node("Neg", second), first, axis=-1)
        return self.node("Add", self.node("Mul", x, cos), self.node("Mul", across, sin))

    def attend(self, q: str, k: str, v: str) -> str:
        scores = self.matmul(q, self.node("Transpose", k, perm=[0, 1, 3, 2]))
        return self.merged(self.matmul(self.softmax(scores), v))

    def matmul(self, x: str | f.Array, y: str | f.Array, transposed: bool = False) -> str:
        y = self.node("Transpose", y, perm=[0, 2, 1]) if transposed else y
        return self.node("MatMul", x, y)

    def softmax(self, x: str) -> str:
        return self.node("Softmax", x, axis=-1)

    def reshape(self, x: str, shape: Sequence[int]) -> str:
        return self.node("Reshape", x, ints(0, *shape))

    def rows(self, x: str, start: int, stop: int | None) -> str:
        return self.sliced(x, start, END if stop is None else stop, axis=1)

    def sliced(self, x: str, start: int, stop: int, axis: int) -> str:
        return self.node("Slice", x, ints(start), ints(stop), ints(axis))

    def mean(self, x: str) -> str:
        return self.node("ReduceMean", x, ints(1), keepdims=0)

    def concat(self, x: str, y: str) -> str:
        return self.node("Concat", x, y, axis=-1)


def ints(*values: int) -> f.Array:
    """A constant of whole numbers, as shapes and bounds are."""
    return np.array(values, np.int64)
