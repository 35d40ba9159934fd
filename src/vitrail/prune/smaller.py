"""Take whole blocks, or neurons of every MLP, out of a model. Heads: surgery.py."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from vitrail.config import ViTConfig, replace
from vitrail.errors import ConfigError
from vitrail.model.vit import VisionTransformer, build_empty
from vitrail.prune.surgery import State

BLOCK = re.compile(r"encoder\.blocks\.(\d+)\.")


def prune_layers(model: VisionTransformer, layers: Iterable[int]) -> VisionTransformer:
    """A shallower model: the blocks of these layers are gone, those behind move up."""
    gone, count = set(layers), model.config.num_hidden_layers
    if not gone <= set(range(count)) or len(gone) == count:
        raise ConfigError(
            f"Asked to prune layers {sorted(gone)} of {count}.", f"Layers 0 to {count - 1}, one of which stays.", ""
        )
    kept = [layer for layer in range(count) if layer not in gone]
    heads = model.config.kept_heads
    config = replace(
        model.config,
        num_hidden_layers=len(kept),
        kept_heads=None if heads is None else tuple(heads[layer] for layer in kept),
    )
    moved = {old: new for new, old in enumerate(kept)}
    state: State = {}
    for name, tensor in model.state_dict().items():
        found = BLOCK.match(name)
        if found and int(found[1]) in gone:
            continue
        state[BLOCK.sub(lambda match: f"encoder.blocks.{moved[int(match[1])]}.", name)] = tensor
    return assembled(config, state, model)


def prune_neurons(model: VisionTransformer, neurons: Sequence[Sequence[int]]) -> VisionTransformer:
    """Narrower MLPs: these neurons of each layer are gone, as many in every layer.

    As many, because the config has one intermediate size for all layers.
    """
    config, width = model.config, model.config.intermediate_size
    counts = {len(set(layer)) for layer in neurons}
    if len(neurons) != config.num_hidden_layers or len(counts) != 1 or not max(counts) < width:
        raise ConfigError(
            f"Asked to prune {sorted(counts)} neurons in {len(neurons)} layers.",
            f"The same number in each of {config.num_hidden_layers} layers, below {width}.",
            "",
        )
    if config.pooling == "map":
        raise ConfigError(
            "The attention-pooling head has an MLP of the same width.",
            "A model whose MLPs are all in blocks.",
            "Prune heads or layers.",
        )
    state = dict(model.state_dict())
    for layer, gone in enumerate(neurons):
        kept = torch.tensor([neuron for neuron in range(width) if neuron not in set(gone)])
        state |= sliced_mlp(state, f"encoder.blocks.{layer}.mlp", kept, width)
    return assembled(replace(config, intermediate_size=width - counts.pop()), state, model)


def sliced_mlp(state: State, name: str, kept: Tensor, width: int) -> State:
    """One MLP's weights with the kept neurons only; a gated MLP's first map has each neuron twice."""
    rows = torch.cat([kept, kept + width]) if len(state[f"{name}.fc1.weight"]) == 2 * width else kept
    return {
        f"{name}.fc1.weight": state[f"{name}.fc1.weight"][rows],
        f"{name}.fc1.bias": state[f"{name}.fc1.bias"][rows],
        f"{name}.fc2.weight": state[f"{name}.fc2.weight"][:, kept],
    }


def assembled(config: ViTConfig, state: State, model: VisionTransformer) -> VisionTransformer:
    """A model of its own from a config and weights, with everything else as the given one has it."""
    smaller = build_empty(config).train(model.training)
    smaller.preprocess, smaller.labels = model.preprocess, list(model.labels)
    smaller.load_state_dict({name: tensor.clone() for name, tensor in state.items()}, assign=True)
    return smaller.requires_grad_(True)
