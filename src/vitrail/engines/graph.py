"""A folded model run, or built, step by step, in whichever runtime `ops` speaks for. The one description of the
inference graph: the torch engine executes it, the OpenVINO and ONNX engines build their graphs with it.
"""

# ruff: noqa: D102 -- each word of the vocabulary is explained on its line

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from vitrail.config import Pair
from vitrail.engines import folded as f
from vitrail.engines.base import Output, Value

Pads = tuple[Pair, Pair]


class Ops(Protocol):
    """The vocabulary of the graph. Tokens are batch x tokens x dim, heads batch x heads x tokens x head_dim."""

    def images(self, pictures: Value, centre: f.Array) -> Value: ...  # integers, channels last -> channels first
    def conv(self, x: Value, kernel: f.Array, stride: Pair, pads: Pads) -> Value: ...
    def group_norm(self, x: Value, groups: int, eps: float, norm: f.Affine) -> Value: ...
    def max_pool(self, x: Value, pads: Pads) -> Value: ...  # 3 x 3, stride 2; beyond the edge is -inf
    def relu(self, x: Value) -> Value: ...
    def strung(self, grid: Value) -> Value: ...  # batch x dim x rows x cols -> batch x patches x dim
    def placed(self, patches: Value, table: f.Array, before: int) -> Value: ...  # so many zero rows before, + table
    def linear(self, x: Value, layer: f.Linear) -> Value: ...
    def normalised(self, x: Value, norm: f.Norm) -> Value: ...  # last axis to mean 0 and variance 1
    def affine(self, x: Value, norm: f.Affine) -> Value: ...
    def add(self, x: Value, y: Value | f.Array) -> Value: ...
    def multiply(self, x: Value, y: Value) -> Value: ...
    def heads(self, x: Value, count: int) -> Value: ...  # tokens -> heads
    def merged(self, x: Value) -> Value: ...  # heads -> tokens
    def turned(self, x: Value, cos: f.Array, sin: f.Array) -> Value: ...  # rotary positions, on heads
    def attend(self, q: Value, k: Value, v: Value) -> Value: ...  # softmax(q k^T) v, already scaled; heads -> tokens
    def matmul(self, x: Value | f.Array, y: Value | f.Array, transposed: bool = False) -> Value: ...  # y: tokens
    def softmax(self, x: Value) -> Value: ...
    def reshape(self, x: Value, shape: Sequence[int]) -> Value: ...  # what follows the batch axis
    def rows(self, x: Value, start: int, stop: int | None) -> Value: ...  # some of the tokens
    def mean(self, x: Value) -> Value: ...  # over tokens: batch x dim
    def concat(self, x: Value, y: Value) -> Value: ...  # along the last axis


def run(ops: Ops, model: f.Folded, pictures: Value, outputs: Sequence[Output]) -> dict[str, Value]:
    """Integer pictures (batch x rows x cols x channels) to what is asked for, by name."""
    x = ops.placed(stem(ops, model.stem, pictures), model.table, model.prefix)
    if model.pre_norm:
        x = ops.affine(ops.normalised(x, model.norm), model.pre_norm)
    for block in model.blocks:
        x = run_block(ops, block, x, model.rotary, model.norm)
    x = ops.normalised(x, model.norm) if model.normalise else x
    return {name: result(ops, model, x, name) for name in outputs}


def stem(ops: Ops, stem: f.Stem, pictures: Value) -> Value:
    """Pictures to patch tokens."""
    x = ops.images(pictures, stem.centre)
    if stem.resnet:
        x = resnet(ops, stem.resnet, x)
    rows, cols = stem.kernel.shape[2:]
    return ops.strung(ops.conv(x, stem.kernel, (rows, cols), ((0, 0), (0, 0))))


def resnet(ops: Ops, net: f.ResNet, x: Value) -> Value:
    """Root, pool, units."""
    x = ops.max_pool(ops.relu(conv(ops, net.root, x)), net.pool_pads)
    for unit in net.units:
        shortcut = conv(ops, unit.shortcut, x) if unit.shortcut else x
        first, second, third = unit.convs
        x = ops.relu(conv(ops, second, ops.relu(conv(ops, first, x))))
        x = ops.relu(ops.add(shortcut, conv(ops, third, x)))
    return x


def conv(ops: Ops, conv: f.Conv, x: Value) -> Value:
    """A convolution and its norm."""
    return ops.group_norm(ops.conv(x, conv.kernel, (conv.stride,) * 2, conv.pads), conv.groups, conv.eps, conv.norm)


def run_block(ops: Ops, block: f.Block, x: Value, rotary: tuple[f.Array, f.Array] | None, norm: f.Norm) -> Value:
    """Norm, attention, residual; norm, MLP, residual. Only the kept tokens come out."""
    kept = x if block.keep is None else ops.rows(x, 0, block.keep)
    if block.attention is None:
        x = kept if block.shift is None else ops.add(kept, block.shift)
    else:
        x = ops.add(kept, attention(ops, block.attention, ops.normalised(x, norm), block.keep, rotary))
    return ops.add(x, mlp(ops, block.mlp, ops.normalised(x, norm)))


def attention(
    ops: Ops,
    layer: f.Attention | f.Gather,
    x: Value,
    keep: int | None,
    rotary: tuple[f.Array, f.Array] | None,
) -> Value:
    """What the kept tokens gather from all tokens."""
    asking = x if keep is None else ops.rows(x, 0, keep)
    if isinstance(layer, f.Gather):
        assert keep is not None
        return gather(ops, layer, asking, x, keep)
    q, k, v = (
        ops.heads(ops.linear(source, part), layer.heads)
        for source, part in ((asking, layer.q), (x, layer.k), (x, layer.v))
    )
    q = ops.affine(ops.normalised(q, layer.norm), layer.q_norm) if layer.q_norm else q
    k = ops.affine(ops.normalised(k, layer.norm), layer.k_norm) if layer.k_norm else k
    if rotary:
        cos, sin = rotary
        q, k = ops.turned(q, cos[:keep], sin[:keep]), ops.turned(k, cos, sin)
    return ops.linear(ops.attend(q, k, v), layer.proj)


def gather(ops: Ops, layer: f.Gather, asking: Value | None, x: Value, count: int) -> Value:
    """What `count` questions per head gather from all tokens, without a key or a value."""
    heads, dim, _ = layer.values.shape[1:]
    question = layer.question
    if isinstance(question, f.Linear):
        question = ops.matmul(ops.heads(ops.linear(asking, question), heads), layer.keys)
        question = ops.reshape(question, (heads * count, dim))
    weights = ops.softmax(ops.matmul(question, x, transposed=True))
    seen = ops.reshape(ops.matmul(weights, x), (heads, count, dim))
    return ops.linear(ops.merged(ops.matmul(seen, layer.values)), layer.proj)


def mlp(ops: Ops, mlp: f.Mlp, x: Value) -> Value:
    """Two linear maps with a bend between, or with a gate."""
    hidden = ops.linear(x, mlp.fc1)
    if mlp.gate:
        hidden = ops.multiply(ops.linear(x, mlp.gate), hidden)
    return ops.linear(hidden, mlp.fc2)


def result(ops: Ops, model: f.Folded, x: Value, name: Output) -> Value:
    """One of the outputs, from the tokens that are left."""
    if name == "logits":
        assert model.head
        return logits(ops, model.head, x, model.prefix, model.norm)
    if name == "token":
        found = one(ops, x, 0)
    else:
        patches = ops.rows(x, model.prefix, None)
        found = ops.mean(patches) if name == "mean" else patches
    return ops.affine(found, model.features) if model.features else found


def logits(ops: Ops, head: f.Head, x: Value, prefix: int, norm: f.Norm) -> Value:
    """Pool, represent, classify."""
    total = None
    for row, layers in enumerate(head.chains):
        part = pooled(ops, head, x, row, prefix, norm)
        part = ops.normalised(part, norm) if head.normalise else part
        for layer in layers:
            part = ops.linear(part, layer) if isinstance(layer, f.Linear) else ops.affine(part, layer)
        total = part if total is None else ops.add(total, part)
    return total


def pooled(ops: Ops, head: f.Head, x: Value, row: int, prefix: int, norm: f.Norm) -> Value:
    """One vector per picture; `row` is the token a chain reads where tokens are read."""
    if head.pool:
        seen = gather(ops, head.pool.gather, None, x, 1)
        return one(ops, ops.add(seen, mlp(ops, head.pool.mlp, ops.normalised(seen, norm))), 0)
    if head.pooling == "token":
        return one(ops, x, row)
    patches = ops.mean(ops.rows(x, prefix, None))
    return patches if head.pooling == "mean" else ops.concat(one(ops, x, 0), patches)


def one(ops: Ops, x: Value, row: int) -> Value:
    """One token: batch x dim."""
    return ops.reshape(ops.rows(x, row, row + 1), (-1,))
