"""Take heads out of a model: slice the weights, note it in the config. What is left is an ordinary model.

A head contributes through its own rows of the query-key-value weight and its own columns of the projection, so
removing those is exactly the same as masking it (to rounding), and costs less in proportion.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from vitrail.config import ViTConfig, replace
from vitrail.errors import ConfigError
from vitrail.model.vit import VisionTransformer, build_empty

State = dict[str, Tensor]


def prune_heads(model: VisionTransformer, heads: Mapping[int, Iterable[int]]) -> VisionTransformer:
    """A smaller model without `heads` (layer -> head numbers, by the numbers they were born with).

    Heads that are already gone stay gone; a layer may lose all of its heads. The model given is left as it is.
    """
    config = without_heads(model.config, heads)
    pruned = build_empty(config).train(model.training)
    pruned.preprocess, pruned.labels = model.preprocess, list(model.labels)
    state = sliced(model.state_dict(), model.config, config)
    pruned.load_state_dict({name: tensor.clone() for name, tensor in state.items()}, assign=True)
    return pruned.requires_grad_(True)


def without_heads(config: ViTConfig, heads: Mapping[int, Iterable[int]]) -> ViTConfig:
    """The config of the same model without those heads."""
    layers = range(config.num_hidden_layers)
    asked = {layer: set(numbers) for layer, numbers in heads.items()}
    for layer, numbers in asked.items():
        if layer not in layers or not numbers <= set(range(config.num_attention_heads)):
            raise ConfigError(
                f"Asked to prune heads {sorted(numbers)} of layer {layer}.",
                f"Layers 0 to {layers[-1]}, heads 0 to {config.num_attention_heads - 1}.",
                "Heads keep the numbers they were born with.",
            )
    kept = (tuple(head for head in config.heads_in(layer) if head not in asked.get(layer, ())) for layer in layers)
    return replace(config, kept_heads=tuple(kept))


def sliced(state: State, old: ViTConfig, new: ViTConfig) -> State:
    """The weights of `new`, cut out of those of `old`."""
    cut = dict(state)
    for layer in range(old.num_hidden_layers):
        name = f"encoder.blocks.{layer}.attn"
        rows = head_rows(old.heads_in(layer), new.heads_in(layer), old.head_dim or 0)
        for part, groups in (("qkv.weight", 3), ("qkv.bias", 3), ("query_value_bias", 2)):
            if f"{name}.{part}" in cut:
                whole = cut[f"{name}.{part}"]
                cut[f"{name}.{part}"] = whole.unflatten(0, (groups, len(whole) // groups))[:, rows].flatten(0, 1)
        cut[f"{name}.proj.weight"] = cut[f"{name}.proj.weight"][:, rows]
    return cut


def head_rows(old: tuple[int, ...], new: tuple[int, ...], head_dim: int) -> Tensor:
    """Where the rows of the heads that stay are, among the rows of the heads that were."""
    places = torch.tensor([old.index(head) for head in new], dtype=torch.long)
    return (places[:, None] * head_dim + torch.arange(head_dim)).flatten()
