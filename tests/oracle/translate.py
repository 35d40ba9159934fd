"""Our models and images in the oracle's words; apart from vitrail.checkpoint, so that neither can excuse the other."""

from __future__ import annotations

import numpy as np
import torch
from oracle.vit_numpy import How, Weights

from vitrail.config import ViTConfig
from vitrail.model.vit import VisionTransformer


def how(config: ViTConfig) -> How:
    """The conventions a config states and a weight file does not."""
    stem = config.resnet
    numbers = {} if stem is None else {name: getattr(stem, name) for name in STEM_CONVENTIONS}
    return How(
        activation=config.hidden_act,
        representation_activation=config.representation_act,
        layer_norm_eps=config.layer_norm_eps,
        pooling=config.pooling,
        position=config.position,
        rotary_base=config.rotary_base,
        table_grid=config.table_grid,
        resampling=config.position_resampling,
        **numbers,
    )


STEM_CONVENTIONS = ("group_norm_eps", "standardization", "standardization_eps", "padding", "shortcut_groups")


def rows_cols_channels(images: torch.Tensor) -> np.ndarray:
    return images.double().numpy().transpose(0, 2, 3, 1)


def google_weights(model: VisionTransformer) -> Weights:
    """Every parameter, once, under the oracle's name and in its layout."""
    ours = {name: value.detach().double().numpy() for name, value in model.state_dict().items()}
    theirs: Weights = {"embedding/kernel": ours.pop("stem.proj.weight").transpose(2, 3, 1, 0)}
    if "stem.proj.bias" in ours:
        theirs["embedding/bias"] = ours.pop("stem.proj.bias")
    for name in [name for name in ours if name.startswith("stem.resnet.")]:
        theirs |= stem_weight(name.removeprefix("stem.resnet."), ours.pop(name))
    for name, word in TOKENS.items():
        if name in ours:
            theirs[word] = ours.pop(name)
    for layer in range(model.config.num_hidden_layers):
        block = take(ours, f"encoder.blocks.{layer}.")
        shape = (len(model.config.heads_in(layer)), model.config.head_dim)
        theirs |= prefixed(f"Transformer/encoderblock_{layer}/", block_weights(block, shape, model.config.mlp))
    pool = take(ours, "head.pool.")
    if pool:
        heads, dim = model.config.num_attention_heads, model.config.hidden_size
        theirs |= prefixed("MAPHead_0/", map_weights(pool, (heads, dim // heads), model.config.mlp))
    for name, word in (("head.classifier", "head"), ("head.classifier_distilled", "head_dist")):
        theirs |= prefixed(f"{word}/", dense(take(ours, f"{name}.")))
    theirs |= prefixed("pre_logits/", dense(take(ours, "head.representation.")))
    for name, word in NORMS.items():
        theirs |= prefixed(f"{word}/", norm(take(ours, f"{name}.")))
    assert not ours, f"no word for {sorted(ours)}"
    return theirs


TOKENS = {
    "tokens.class_token": "cls",
    "tokens.distillation_token": "dist",
    "tokens.register_tokens": "reg",
    "tokens.position.table": "Transformer/posembed_input/pos_embedding",
}
NORMS = {"tokens.norm": "Transformer/pre_norm", "encoder.norm": "Transformer/encoder_norm", "head.norm": "fc_norm"}


def stem_weight(name: str, value: np.ndarray) -> Weights:
    """stages.0.1.conv2.weight -> block1/unit2/conv2/kernel; root_norm.bias -> gn_root/bias."""
    *where, module, leaf = name.split(".")
    prefix = f"block{int(where[1]) + 1}/unit{int(where[2]) + 1}/" if where else ""
    module = {"root": "conv_root", "root_norm": "gn_root"}.get(module, module).replace("norm", "gn")
    if value.ndim == 4:
        return {f"{prefix}{module}/kernel": value.transpose(2, 3, 1, 0)}
    return {f"{prefix}{module}/{'scale' if leaf == 'weight' else 'bias'}": value}


def block_weights(ours: Weights, shape: tuple[int, int], mlp: str) -> Weights:
    theirs = prefixed("LayerNorm_0/", norm(take(ours, "norm1."))) | prefixed("LayerNorm_2/", norm(take(ours, "norm2.")))
    for number, name in (("0", "scale1"), ("2", "scale2")):
        if name in ours:
            theirs[f"LayerScale_{number}/scale"] = ours.pop(name)
    attention = attention_weights(take(ours, "attn."), shape)
    theirs |= prefixed("MultiHeadDotProductAttention_1/", attention)
    theirs |= prefixed("MlpBlock_3/", mlp_weights(take(ours, "mlp."), mlp))
    assert not ours, f"no word for {sorted(ours)}"
    return theirs


def attention_weights(ours: Weights, shape: tuple[int, int]) -> Weights:
    """`shape` is (heads, head_dim): Google's kernels keep the two apart."""
    theirs: Weights = {}
    for name, weight in zip(("query", "key", "value"), np.split(ours.pop("qkv.weight"), 3), strict=True):
        theirs[f"{name}/kernel"] = weight.T.reshape(weight.shape[1], *shape)
    if "qkv.bias" in ours:
        for name, bias in zip(("query", "key", "value"), np.split(ours.pop("qkv.bias"), 3), strict=True):
            theirs[f"{name}/bias"] = bias.reshape(shape)
    if "query_value_bias" in ours:
        for name, bias in zip(("query", "value"), np.split(ours.pop("query_value_bias"), 2), strict=True):
            theirs[f"{name}/bias"] = bias.reshape(shape)
    out = ours.pop("proj.weight")
    theirs["out/kernel"] = out.T.reshape(*shape, len(out))
    theirs["out/bias"] = ours.pop("proj.bias")
    for name, word in (("q_norm", "query_ln"), ("k_norm", "key_ln")):
        theirs |= prefixed(f"{word}/", norm(take(ours, f"{name}.")))
    assert not ours, f"no word for {sorted(ours)}"
    return theirs


def mlp_weights(ours: Weights, mlp: str) -> Weights:
    first, second = take(ours, "fc1."), take(ours, "fc2.")
    assert not ours, f"no word for {sorted(ours)}"
    theirs = prefixed("Dense_1/", dense(second))
    if mlp == "dense":
        return theirs | prefixed("Dense_0/", dense(first))
    halves = {name: np.split(value, 2) for name, value in first.items()}  # rows of the gate, then of what it gates
    theirs |= prefixed("Gate_0/", dense({name: gate for name, (gate, _) in halves.items()}))
    return theirs | prefixed("Dense_0/", dense({name: hidden for name, (_, hidden) in halves.items()}))


def map_weights(ours: Weights, shape: tuple[int, int], mlp: str) -> Weights:
    theirs = {"probe": ours.pop("query")}
    theirs |= prefixed("LayerNorm_0/", norm(take(ours, "norm.")))
    theirs |= prefixed("MlpBlock_0/", mlp_weights(take(ours, "mlp."), mlp))
    return theirs | prefixed("MultiHeadDotProductAttention_0/", attention_weights(ours, shape))


def dense(ours: Weights) -> Weights:
    return {("kernel" if name == "weight" else name): value.T for name, value in ours.items()}


def norm(ours: Weights) -> Weights:
    return {("scale" if name == "weight" else name): value for name, value in ours.items()}


def take(ours: Weights, prefix: str) -> Weights:
    """Removes what starts with `prefix` from `ours` and returns it, without the prefix."""
    names = [name for name in ours if name.startswith(prefix)]
    return {name.removeprefix(prefix): ours.pop(name) for name in names}


def prefixed(prefix: str, weights: Weights) -> Weights:
    return {prefix + name: value for name, value in weights.items()}
