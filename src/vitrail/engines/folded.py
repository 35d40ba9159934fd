"""The inference form of a model, as plain records of arrays. How it comes about is fold.py; how it runs is graph.py.

The same records hold numpy arrays (to build a graph from) and torch tensors (to run at once): see `mapped`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeVar

from vitrail.config import Activation, Pair

Array = Any  # numpy array or torch tensor
Record = TypeVar("Record")
Act = Activation | None


@dataclass(frozen=True)
class Linear:
    """x @ weight.T + bias, then a bend; weight is outputs x inputs."""

    weight: Array
    bias: Array | None = None
    act: str | None = None


@dataclass(frozen=True)
class Affine:
    """x * scale + shift, channel by channel: what is left of a norm where no linear layer follows."""

    scale: Array
    shift: Array


@dataclass(frozen=True)
class Norm:
    """So many numbers in a row are brought to mean 0 and variance 1."""

    width: int
    eps: float


@dataclass(frozen=True)
class Attention:
    """Every kept token asks every token."""

    q: Linear
    k: Linear
    v: Linear
    proj: Linear
    heads: int
    norm: Norm  # of queries and keys, where they have one: where there are affines
    q_norm: Affine | None
    k_norm: Affine | None


@dataclass(frozen=True)
class Gather:
    """A few questions to all tokens; keys and values are never computed."""

    question: Linear | Array  # of the kept tokens | the same for every picture: 1 x heads x dim
    keys: Array | None  # 1 x heads x head_dim x dim; None where the question has been through them
    values: Array  # 1 x heads x dim x head_dim
    proj: Linear
    heads: int


@dataclass(frozen=True)
class Mlp:
    """Two linear maps with a bend between, or with a gate."""

    fc1: Linear
    gate: Linear | None
    fc2: Linear


@dataclass(frozen=True)
class Block:
    """Attention and MLP, each added to the residual stream."""

    attention: Attention | Gather | None  # None where all heads are pruned
    shift: Array | None  # what a block without heads still adds
    mlp: Mlp
    keep: int | None  # how many leading tokens go on from here; None: all


@dataclass(frozen=True)
class Conv:
    """A convolution without bias, its norm, and the padding before it: (top, bottom), (left, right)."""

    kernel: Array
    stride: int
    pads: tuple[Pair, Pair]
    groups: int
    eps: float
    norm: Affine


@dataclass(frozen=True)
class Unit:
    """A bottleneck: three convolutions beside a shortcut."""

    convs: tuple[Conv, Conv, Conv]
    shortcut: Conv | None


@dataclass(frozen=True)
class ResNet:
    """The hybrid's stem: root, pool, units."""

    root: Conv
    pool_pads: tuple[Pair, Pair]
    units: tuple[Unit, ...]


@dataclass(frozen=True)
class Stem:
    """Pixels minus `centre`, through the ResNet of a hybrid, to patches."""

    centre: Array  # channels
    resnet: ResNet | None
    kernel: Array  # dim x channels x rows x cols


@dataclass(frozen=True)
class Pool:
    """The MAP head: a gather, then an MLP beside it."""

    gather: Gather
    mlp: Mlp


@dataclass(frozen=True)
class Head:
    """Pool, then one chain of layers per token that is read; the chains' results are added."""

    pooling: str
    pool: Pool | None
    normalise: bool  # the norm comes after pooling
    chains: tuple[tuple[Linear | Affine, ...], ...]


@dataclass(frozen=True)
class Folded:
    """A whole model for one picture size and one set of outputs."""

    stem: Stem
    prefix: int  # tokens before the first patch
    table: Array  # tokens x dim: all that is added to the patches, and the prefix tokens
    pre_norm: Affine | None
    rotary: tuple[Array, Array] | None  # cosines and sines, tokens x head_dim
    blocks: tuple[Block, ...]
    normalise: bool  # the norm comes before pooling
    features: Affine | None  # that norm's scale and shift, for whoever reads the tokens themselves
    head: Head | None
    norm: Norm  # of tokens


def mapped(record: Record, function: Callable[[Any], Any], leaf: Callable[[Any], bool] | None = None) -> Record:
    """The same record with every array (or whatever `leaf` says) replaced by function(it)."""
    if (leaf or is_array)(record):
        return function(record)  # type: ignore[no-any-return]
    if is_dataclass(record) and not isinstance(record, type):
        changed = {field.name: mapped(getattr(record, field.name), function, leaf) for field in fields(record)}
        return replace(record, **changed)
    if isinstance(record, tuple):
        return tuple(mapped(item, function, leaf) for item in record)  # type: ignore[return-value]
    return record


def is_array(value: Any) -> bool:
    """Whether this is a numpy array or a torch tensor."""
    return hasattr(value, "shape")
