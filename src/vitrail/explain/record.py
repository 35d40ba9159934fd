"""One forward pass, remembered well enough to rebuild any row of its attention, and that row's gradient.

The pass stays on the fast kernels. Attention is rebuilt from queries and keys a layer and a slice of query rows at a
time, so layers x heads x tokens x tokens never exist together. Gradients need no slow pass either: a head gathers
context = weights @ v, so d score / d weights = (d score / d context) @ v^T, rebuilt in the same slices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.config import Pair, ViTConfig
from vitrail.explain.target import Asked, Target, target_of
from vitrail.model.encoder import attention_scores
from vitrail.model.probe import Probe
from vitrail.model.vit import VisionTransformer

SLICE_BYTES = 8 * 2**20  # of attention weights at a time; 2 to 64 MiB run equally fast, and memory stays flat


@dataclass(frozen=True)
class Layer:
    """One layer's attention: batch x heads x tokens x head_dim, heads by the numbers they were born with."""

    heads: tuple[int, ...]
    q: Tensor
    k: Tensor
    v: Tensor | None = None
    gradient: Tensor | None = None  # of the target's score, with respect to what each query gathered

    def weights(self, queries: slice) -> Tensor:
        """Attention weights of some query rows: batch x heads x queries x tokens."""
        return attention_scores(precise(self.q[:, :, queries]), precise(self.k)).softmax(-1)

    def weight_gradients(self, queries: slice) -> Tensor:
        """Gradient of the score with respect to those weights."""
        assert self.gradient is not None
        assert self.v is not None
        return precise(self.gradient[:, :, queries]) @ precise(self.v).transpose(-2, -1)

    def slices(self) -> Iterator[slice]:
        """All query rows, few enough at a time."""
        batch, heads, tokens, _ = self.q.shape
        count = max(1, SLICE_BYTES // max(1, 4 * batch * heads * tokens))
        return (slice(start, min(start + count, tokens)) for start in range(0, tokens, count))


@dataclass(frozen=True)
class Recording:
    """What a pass left behind. `read` (batch x tokens) is how much of each final token the head reads."""

    config: ViTConfig
    grid: Pair
    outputs: Tensor
    target: Target
    layers: list[Layer]
    read: Tensor


def record(model: VisionTransformer, images: Tensor, asked: Asked = None, gradients: bool = False) -> Recording:
    """Run the images once; with `gradients`, also once backwards from the target's score."""
    parts = ("q", "k", "v", "context") if gradients else ("q", "k")
    keep = None if gradients else own_memory
    probe = Probe(*(f"blocks.*.attn.{part}" for part in parts), "norm.out", keep=keep)
    with evaluating(model, gradients):
        outputs = model(images.detach().clone().requires_grad_(gradients), probe)
        target = target_of(model, outputs, asked)
        found = gradients_of(target.score(outputs).sum(), probe, len(model.encoder.blocks)) if gradients else {}
    layers = [
        recorded_layer(model.config, probe, layer, found.get(layer)) for layer in range(len(model.encoder.blocks))
    ]
    with torch.no_grad():
        read = reading(model, probe["norm.out"].detach())
    return Recording(
        model.config, model.config.grid_for(size_of(images)), outputs.detach(), target, layers, precise(read)
    )


def own_memory(_: str, tensor: Tensor) -> Tensor:
    """A copy: queries and keys are views that would keep the values alive too."""
    return tensor.clone()


def gradients_of(score: Tensor, probe: Probe, layers: int) -> dict[int, Tensor]:
    """The score's gradient with respect to what the heads of each layer gathered."""
    contexts = [probe[f"blocks.{layer}.attn.context"] for layer in range(layers)]
    found = torch.autograd.grad(score, contexts, allow_unused=True)
    return {layer: gradient for layer, gradient in enumerate(found) if gradient is not None}


def recorded_layer(config: ViTConfig, probe: Probe, layer: int, gradient: Tensor | None) -> Layer:
    """One layer out of the probe."""
    parts = {part: probe[name].detach() for part in "qkv" if (name := f"blocks.{layer}.attn.{part}") in probe}
    if "v" in parts and gradient is None:  # nothing this layer gathers reaches the score
        gradient = torch.zeros_like(parts["v"])
    return Layer(heads=config.heads_in(layer), gradient=gradient, **parts)


def carried(rows: Tensor, layer: Layer, moves: Callable[[Layer, slice], Tensor]) -> Tensor:
    """`rows` (batch x wanted x tokens) times a batch x tokens x tokens matrix that is made slice by slice."""
    out = torch.zeros_like(rows)
    for queries in layer.slices():
        some = rows[:, :, queries]
        if some.any():  # a class token's row needs one slice of the last layer
            out += some @ moves(layer, queries)
    return out


def reading(model: VisionTransformer, tokens: Tensor) -> Tensor:
    """How much of each token the head reads (batch x tokens, rows sum to 1)."""
    config, prefix = model.config, model.config.prefix_tokens
    if config.pooling == "map":
        return pool_weights(model, tokens)
    first = torch.zeros_like(tokens[0, :, 0])
    first[: 1 + config.distillation_token] = 1 / (1 + config.distillation_token)
    patches = torch.zeros_like(first)
    patches[prefix:] = 1 / (tokens.shape[1] - prefix)
    read = {"token": first, "mean": patches, "token_and_mean": (first + patches) / 2}[config.pooling]
    return read.expand(len(tokens), -1)


def pool_weights(model: VisionTransformer, tokens: Tensor) -> Tensor:
    """What the attention-pooling head's learned query looks at, averaged over its heads."""
    pool, dim = model.head.pool, tokens.shape[2]
    assert pool is not None
    q = F.linear(pool.query.expand(len(tokens), -1, -1), pool.qkv.weight[:dim], pool.qkv.bias[:dim])
    k = F.linear(tokens, pool.qkv.weight[dim : 2 * dim], pool.qkv.bias[dim : 2 * dim])
    q, k = (torch.unflatten(part, -1, (pool.heads, -1)).transpose(1, 2) for part in (q, k))
    weights: Tensor = attention_scores(q, k).softmax(-1)
    return weights.mean(1)[:, 0]


def patch_maps(rows: Tensor, config: ViTConfig, grid: Pair) -> Tensor:
    """Rows over tokens as maps over patches: prefix tokens dropped, the rest brought back to a sum of 1."""
    patches = rows[..., config.prefix_tokens :]
    total = patches.sum(-1, keepdim=True)
    return torch.unflatten(patches / total.clamp_min(torch.finfo(total.dtype).tiny), -1, grid)


@contextmanager
def evaluating(model: VisionTransformer, gradients: bool = False) -> Iterator[None]:
    """Evaluation mode inside, with or without gradients, whatever the caller has set."""
    training = model.training
    model.eval()
    try:
        with torch.inference_mode(False), torch.set_grad_enabled(gradients):
            yield
    finally:
        model.train(training)


def precise(tensor: Tensor) -> Tensor:
    """In 32 bits at least: 16 are too few to add up what 4,000 tokens hold."""
    return tensor.float() if tensor.element_size() < 4 else tensor


def size_of(images: Tensor) -> Pair:
    """Rows and columns of pixels."""
    return images.shape[2], images.shape[3]
