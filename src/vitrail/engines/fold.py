"""A model rewritten for inference: fewer operations, the same function.

    mean, std, 1/255              into the patch projection; pixels only lose an integer, exact in every precision
    projection bias               into the position table, as are class, distillation and register tokens
    LayerNorm scale and shift     into the linear layer that follows
    1/sqrt(head_dim)              into the queries
    key bias                      gone: it adds one number to all scores of a row, which softmax does not see
    value bias                    into the output projection: the weights of a row sum to one
    LayerScale                    into the linear layer before it
    last block                    only for the tokens the head reads, and without keys and values:
                                  q (K x) = (q K) x, so a question goes through the weights once, not every token

Computed in float64, stored as asked. tests/engines/test_fold.py holds it to 1e-10 of the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import cast

import numpy as np
import torch
from numpy.typing import DTypeLike
from torch import Tensor, nn

from vitrail.config import Pair
from vitrail.engines import folded as f
from vitrail.engines.base import FULL_SCALE, Output
from vitrail.engines.fold_stem import Doubles, fold_stem, numbers
from vitrail.errors import UsageError
from vitrail.model.encoder import Block
from vitrail.model.heads import AttentionPool, Head
from vitrail.model.mlp import MLP
from vitrail.model.vit import VisionTransformer


@torch.no_grad()
def fold(
    model: VisionTransformer,
    size: Pair | None = None,
    outputs: Sequence[Output] = ("logits",),
    depth: int = 8,
    dtype: DTypeLike = np.float32,
) -> f.Folded:
    """The model for pictures of one size and depth, computing `outputs` and nothing else."""
    config, size = model.config, size or model.preprocess.size
    keep = rows_needed(model, outputs)
    stored = partial(f.mapped, function=lambda array: np.ascontiguousarray(array, dtype))
    stem, bias = fold_stem(model, size, FULL_SCALE[depth])
    norm = affine(model.encoder.norm)
    rotary = model.encoder.rotary(config.grid_for(size), torch.zeros((), dtype=torch.float64))
    last = config.num_hidden_layers - 1
    return f.Folded(
        stem=stored(stem),
        prefix=config.prefix_tokens,
        table=stored(token_table(model, size, bias)),
        pre_norm=stored(affine(model.tokens.norm)),
        rotary=stored(rotary_tables(rotary, config.prefix_tokens)),
        blocks=tuple(
            stored(fold_block(block, config.hidden_act, rotary is not None, keep if layer == last else None))
            for layer, block in enumerate(cast(Iterable[Block], model.encoder.blocks))
        ),
        normalise=norm is not None,
        features=stored(norm),
        head=stored(fold_head(model.head, norm)) if "logits" in outputs else None,
        norm=f.Norm(config.hidden_size, config.layer_norm_eps),
    )


def rows_needed(model: VisionTransformer, outputs: Sequence[Output]) -> int | None:
    """How many leading tokens the outputs read; None: all."""
    if "token" in outputs and not model.config.class_token:
        raise UsageError("The model has no class token.", "Its patches have a mean and a grid.", "Ask for one of them.")
    if {"mean", "grid"} & set(outputs):
        return None
    reads = model.head.reads if "logits" in outputs else 1
    return None if reads is None else max(reads, 1)


def token_table(model: VisionTransformer, size: Pair, bias: Doubles) -> Doubles:
    """One row per token: prefix tokens, or the projection's bias, plus positions."""
    grid = model.config.grid_for(size)
    patches = np.broadcast_to(bias, (grid[0] * grid[1], len(bias)))
    table = np.concatenate([*(numbers(token)[0] for token in model.tokens.prefix(1)), patches])
    positions = model.tokens.positions(grid, torch.zeros((), dtype=torch.float64))
    return table if positions is None else table + numbers(positions)[0]


def rotary_tables(rotary: tuple[Tensor, Tensor] | None, prefix: int) -> tuple[Doubles, Doubles] | None:
    """Cosines and sines for every token; a prefix token turns by nothing."""
    if rotary is None:
        return None
    cos, sin = (numbers(part) for part in rotary)
    still = (prefix, cos.shape[1])
    return np.concatenate([np.ones(still), cos]), np.concatenate([np.zeros(still), sin])


def fold_block(block: Block, act: str, rotary: bool, keep: int | None) -> f.Block:
    """One block, its norms and scales inside its linear layers."""
    attention = fold_attention(block, rotary)
    mlp = fold_mlp(block.mlp, act, affine(block.norm2), block.scale2)
    if not attention.heads:
        return f.Block(None, attention.proj.bias, mlp, keep)
    linear_keys = attention.q_norm is None and not rotary
    return f.Block(as_gather(attention) if keep is not None and linear_keys else attention, None, mlp, keep)


def fold_attention(block: Block, rotary: bool) -> f.Attention:
    """Queries, keys, values and the projection behind them."""
    attn, norm = block.attn, affine(block.norm1)
    bias = attn.bias()
    biases = (None, None, None) if bias is None else np.split(numbers(bias), 3)
    weights = np.split(numbers(attn.qkv.weight), 3)
    q, k, v = (after_norm(f.Linear(w, b), norm) for w, b in zip(weights, biases, strict=True))
    q_norm, k_norm = affine(attn.q_norm), affine(attn.k_norm)
    shrink = attn.head_dim**-0.5
    if q_norm is None:
        q = scaled_rows(q, np.full(len(q.weight), shrink))
    else:
        q_norm = f.Affine(q_norm.scale * shrink, q_norm.shift * shrink)
    if q_norm is None and not rotary:
        k = replace(k, bias=None)
    proj = scaled_rows(absorbing(linear(attn.proj), v.bias), block.scale1)
    norm_of_heads = f.Norm(attn.head_dim, block.norm1.eps)
    return f.Attention(q, k, replace(v, bias=None), proj, len(attn.heads), norm_of_heads, q_norm, k_norm)


def as_gather(attention: f.Attention) -> f.Gather:
    """The same attention with keys and values applied to the few that ask instead of to all that are asked."""
    heads, dim = attention.heads, attention.k.weight.shape[1]
    keys, values = (part.weight.reshape(1, heads, -1, dim) for part in (attention.k, attention.v))
    return f.Gather(attention.q, keys, values.transpose(0, 1, 3, 2), attention.proj, heads)


def fold_mlp(mlp: MLP, act: str, norm: f.Affine | None, scale: Tensor | None) -> f.Mlp:
    """The MLP behind its norm, LayerScale inside its last layer."""
    fc1, fc2 = after_norm(linear(mlp.fc1), norm), scaled_rows(linear(mlp.fc2), scale)
    if not mlp.gated:
        return f.Mlp(replace(fc1, act=act), None, fc2)
    half = len(fc1.weight) // 2
    assert fc1.bias is not None
    gate = f.Linear(fc1.weight[:half], fc1.bias[:half], act)
    return f.Mlp(f.Linear(fc1.weight[half:], fc1.bias[half:]), gate, fc2)


def fold_head(head: Head, norm: f.Affine | None) -> f.Head:
    """Pooling and classifiers. `norm` is the one before pooling."""
    config = head.config
    pool = fold_pool(head.pool, config.hidden_act, norm) if head.pool is not None else None
    pooled_norm = affine(head.norm)
    before = pooled_norm or (None if pool else norm)
    if before and config.pooling == "token_and_mean":
        before = f.Affine(np.tile(before.scale, 2), np.tile(before.shift, 2))
    classifiers = [head.classifier, *([head.classifier_distilled] if head.classifier_distilled else [])]
    chains = tuple(chain(head, classifier, before, 1 / len(classifiers)) for classifier in classifiers)
    return f.Head(config.pooling, pool, pooled_norm is not None, chains)


def chain(head: Head, classifier: nn.Module, before: f.Affine | None, share: float) -> tuple[f.Linear | f.Affine, ...]:
    """The layers from a pooled token to its share of the logits."""
    layers: list[f.Linear] = []
    if head.representation is not None:
        layers.append(replace(linear(head.representation), act=head.config.representation_act))
    if isinstance(classifier, nn.Linear):
        last = linear(classifier)
        layers.append(f.Linear(last.weight * share, None if last.bias is None else last.bias * share))
    if not layers:
        return () if before is None else (before,)
    return (after_norm(layers[0], before), *layers[1:])


def fold_pool(pool: AttentionPool, act: str, norm: f.Affine | None) -> f.Pool:
    """The MAP head. Its query is learned, so the question is the same for every picture and is asked in advance."""
    weights, biases = np.split(numbers(pool.qkv.weight), 3), np.split(numbers(pool.qkv.bias), 3)
    k, v = (after_norm(f.Linear(w, b), norm) for w, b in zip(weights[1:], biases[1:], strict=True))
    dim = weights[0].shape[1]
    query = (numbers(pool.query)[0, 0] @ weights[0].T + biases[0]).reshape(pool.heads, -1)
    query = query * query.shape[1] ** -0.5
    keys, values = (part.weight.reshape(pool.heads, -1, dim) for part in (k, v))
    question = np.einsum("hd,hde->he", query, keys)[None]
    gather = f.Gather(question, None, values.transpose(0, 2, 1)[None], absorbing(linear(pool.proj), v.bias), pool.heads)
    return f.Pool(gather, fold_mlp(pool.mlp, act, affine(pool.norm), None))


def after_norm(layer: f.Linear, norm: f.Affine | None) -> f.Linear:
    """W (s x + t) + b = (W s) x + (W t + b)."""
    if norm is None:
        return layer
    bias = layer.weight @ norm.shift
    return replace(layer, weight=layer.weight * norm.scale, bias=bias if layer.bias is None else bias + layer.bias)


def absorbing(layer: f.Linear, constant: Doubles | None) -> f.Linear:
    """The layer for inputs that lack `constant`."""
    if constant is None:
        return layer
    moved = layer.weight @ constant
    return replace(layer, bias=moved if layer.bias is None else layer.bias + moved)


def scaled_rows(layer: f.Linear, scale: Tensor | Doubles | None) -> f.Linear:
    """The layer with each output times its factor."""
    if scale is None:
        return layer
    factors = numbers(scale) if isinstance(scale, Tensor) else scale
    bias = None if layer.bias is None else layer.bias * factors
    return replace(layer, weight=layer.weight * factors[:, None], bias=bias)


def linear(module: nn.Linear) -> f.Linear:
    """A linear layer as it is."""
    return f.Linear(numbers(module.weight), None if module.bias is None else numbers(module.bias))


def affine(norm: nn.Module) -> f.Affine | None:
    """A norm's scale and shift; None where the model has an identity instead."""
    if not isinstance(norm, nn.LayerNorm):
        return None
    return f.Affine(numbers(norm.weight), numbers(norm.bias))
