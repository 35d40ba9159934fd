"""How much a model would miss each head, block and neuron.

Scores of heads are layers x heads, by the numbers heads were born with, NaN where one is gone. Higher is missed more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from vitrail.model.probe import SILENT, Probe
from vitrail.model.vit import VisionTransformer
from vitrail.prune.task import Task

Score = Literal["ablation", "gradient", "taylor", "entropy", "distance", "random"]
MOST_QUERIES = 256  # query rows looked at for entropy and distance: all of them up to 16 x 16 patches


def head_scores(model: VisionTransformer, task: Task, score: Score, seed: int = 0) -> Tensor:
    """The importance of every head."""
    training = model.training
    found = SCORES[score](model.eval(), task, seed)
    model.train(training)
    return found


def ablation(model: VisionTransformer, task: Task, _: int = 0) -> Tensor:
    """The true rise of the loss when the head alone is switched off."""
    found = empty_scores(model)
    with torch.inference_mode():
        for images, rows in task.batches():
            x, grid = embedded(model, images)
            before = task.losses(finished(model, x, grid, 0), rows).sum()
            for layer, block in enumerate(model.encoder.blocks):
                for head in model.config.heads_in(layer):
                    gates = torch.ones(model.config.num_attention_heads)
                    gates[head] = 0.0
                    after = task.losses(finished(model, x, grid, layer, Probe(scale_heads={layer: gates})), rows).sum()
                    found[layer, head] += (after - before).cpu() / len(task.images)
                x = block(x, model.encoder.rotary(grid, x))
    return found


def gradient(model: VisionTransformer, task: Task, seed: int = 0) -> Tensor:
    """mean over images of |d loss / d gate|, each layer's scores over their length (Michel et al., 2019)."""
    each = gate_gradients(model, task, seed).abs().mean(0)
    lengths: Tensor = each.norm(dim=1, keepdim=True)
    return empty_scores(model) + each / lengths.clamp_min(1e-12)


def taylor(model: VisionTransformer, task: Task, seed: int = 0) -> Tensor:
    """The rise of the loss that its slope and curvature at the gate promise: -E[g] + E[g^2] / 2.

    E[g^2] stands in for the second derivative, as in Fisher pruning (Theis et al., 2018).
    """
    each = gate_gradients(model, task, seed)
    return empty_scores(model) - each.mean(0) + each.square().mean(0) / 2


def entropy(model: VisionTransformer, task: Task, _: int = 0) -> Tensor:
    """One minus the mean entropy of a head's rows over that of an even spread: a head that points is not even."""

    def evenness(weights: Tensor) -> Tensor:
        entropies = -(weights * weights.clamp_min(1e-30).log()).sum(-1).mean(-1)
        return entropies / torch.tensor(float(weights.shape[-1])).log()

    return 1 - mean_over_images(model, task, evenness)


def distance(model: VisionTransformer, task: Task, _: int = 0) -> Tensor:
    """How far a head looks, in pixels (FACTS: prefix dropped, rows to 1), with far heads taken for the important."""
    config = model.config
    grid = config.grid_for((task.images.shape[2], task.images.shape[3]))
    axes = [torch.arange(count) * float(step) for count, step in zip(grid, config.stride, strict=True)]
    places = torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1).flatten(0, 1)
    asking = torch.tensor(asked_queries(model, task)) - config.prefix_tokens
    apart = torch.cdist(places[asking], places)

    def reach(weights: Tensor) -> Tensor:
        patches = weights[..., config.prefix_tokens :]
        return ((patches * apart.to(patches)).sum(-1) / patches.sum(-1)).mean(-1)

    return mean_over_images(model, task, reach)


def random(model: VisionTransformer, _: Task, seed: int = 0) -> Tensor:
    """The baseline."""
    return empty_scores(model) + torch.rand(empty_scores(model).shape, generator=torch.Generator().manual_seed(seed))


SCORES: dict[str, Callable[[VisionTransformer, Task, int], Tensor]] = {
    "ablation": ablation,
    "gradient": gradient,
    "taylor": taylor,
    "entropy": entropy,
    "distance": distance,
    "random": random,
}


def block_scores(model: VisionTransformer, task: Task) -> Tensor:
    """The true rise of the loss when a whole block is skipped: one number per layer."""
    found = torch.zeros(model.config.num_hidden_layers)
    with torch.inference_mode():
        for images, rows in task.batches():
            x, grid = embedded(model, images)
            before = task.losses(finished(model, x, grid, 0), rows).sum()
            for layer, block in enumerate(model.encoder.blocks):
                found[layer] += (task.losses(finished(model, x, grid, layer + 1), rows).sum() - before).cpu()
                x = block(x, model.encoder.rotary(grid, x))
    return found / len(task.images)


def neuron_scores(model: VisionTransformer, task: Task, seed: int = 0) -> list[Tensor]:
    """mean over images of |d loss / d gate| of every neuron of every MLP: one row per layer."""
    names = [f"blocks.{layer}.mlp.activated" for layer in range(model.config.num_hidden_layers)]
    return [each.abs().mean(0) for each in gated(model, task, names, lambda x, slope: (x * slope).sum(1), seed)]


def gate_gradients(model: VisionTransformer, task: Task, seed: int) -> Tensor:
    """d loss / d gate of every head, for every image: images x layers x heads, zero for heads that are gone.

    A gate scales what a head has gathered, so its slope is that vector times its gradient: one backward pass.
    """
    names = [f"blocks.{layer}.attn.context" for layer in range(model.config.num_hidden_layers)]
    found = torch.zeros(len(task.images), *empty_scores(model).shape)
    for layer, each in enumerate(gated(model, task, names, lambda x, slope: (x * slope).sum((2, 3)), seed)):
        found[:, layer, list(model.config.heads_in(layer))] = each
    return found


def gated(
    model: VisionTransformer, task: Task, names: list[str], slopes: Callable[[Tensor, Tensor], Tensor], seed: int
) -> list[Tensor]:
    """For each name, `slopes` of what the probe finds there and of its gradient, for every image of the task."""
    generator = torch.Generator().manual_seed(seed)
    found: list[list[Tensor]] = [[] for _ in names]
    for images, rows in task.batches():
        probe = Probe(*names)
        with torch.enable_grad():
            outputs = model(images.clone().requires_grad_(), probe)
            watched = [probe[name] for name in names]
            gradients = torch.autograd.grad(
                task.probes(outputs, rows, generator).sum(), watched, allow_unused=True, materialize_grads=True
            )
        for each, tensor, slope in zip(found, watched, gradients, strict=True):
            each.append(slopes(tensor.detach().float(), slope.float()).cpu())
    return [torch.cat(each) for each in found]


def mean_over_images(model: VisionTransformer, task: Task, measure: Callable[[Tensor], Tensor]) -> Tensor:
    """`measure` of attention weights (batch x heads x some queries x tokens), averaged over images."""
    found = empty_scores(model)
    with torch.inference_mode():
        for images, _ in task.batches():
            probe = Probe(
                "blocks.*.attn.weights",
                queries=asked_queries(model, task),
                keep=lambda _, weights: measure(weights.float()),
            )
            model(images, probe)
            for layer in range(model.config.num_hidden_layers):
                heads = list(model.config.heads_in(layer))
                if heads:
                    found[layer, heads] += probe[f"blocks.{layer}.attn.weights"].sum(0).cpu() / len(task.images)
    return found


def asked_queries(model: VisionTransformer, task: Task) -> list[int]:
    """Patch tokens to look from: all, or an even sample of many."""
    rows, cols = model.config.grid_for((task.images.shape[2], task.images.shape[3]))
    patches = torch.linspace(0, rows * cols - 1, min(rows * cols, MOST_QUERIES)).round().long()
    return (patches + model.config.prefix_tokens).tolist()


def empty_scores(model: VisionTransformer) -> Tensor:
    """Zero for every head, NaN for those that are gone."""
    found = torch.full((model.config.num_hidden_layers, model.config.num_attention_heads), torch.nan)
    for layer in range(model.config.num_hidden_layers):
        found[layer, list(model.config.heads_in(layer))] = 0.0
    return found


def embedded(model: VisionTransformer, images: Tensor) -> tuple[Tensor, tuple[int, int]]:
    """Tokens before the first block, and their grid."""
    grid = model.stem(images)
    return model.tokens(grid), (grid.shape[2], grid.shape[3])


def finished(model: VisionTransformer, x: Tensor, grid: tuple[int, int], layer: int, probe: Probe = SILENT) -> Tensor:
    """Outputs from the tokens before block `layer`: what is common to many trials is computed once."""
    blocks, rotary = model.encoder.blocks, model.encoder.rotary(grid, x)
    for number in range(layer, len(blocks)):
        x = blocks[number](x, rotary, probe, model.head.reads if number == len(blocks) - 1 else None)
    outputs: Tensor = model.head(model.encoder.norm(x))
    return outputs
