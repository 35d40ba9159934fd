"""config.json as timm writes it beside its weights, read as our config fields and written from them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from vitrail.config import ViTConfig, as_pair
from vitrail.errors import CheckpointError, ConfigError
from vitrail.model.variants import config_for

# timm's constructor argument: our field
ARGUMENTS = {
    "img_size": "image_size",
    "patch_size": "patch_size",
    "in_chans": "num_channels",
    "embed_dim": "hidden_size",
    "depth": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "num_classes": "num_classes",
    "qkv_bias": "qkv_bias",
    "qk_norm": "qk_norm",
    "init_values": "layer_scale",
    "class_token": "class_token",
    "reg_tokens": "num_register_tokens",
    "pre_norm": "pre_norm",
    "drop_path_rate": "drop_path_rate",
    "attn_drop_rate": "attention_probs_dropout_prob",
}
POOLING = {"token": "token", "avg": "mean", "map": "map"}
ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_tanh", "quick_gelu": "quick_gelu", "relu": "relu", "silu": "silu"}

# Architectures whose activation or epsilon is written in timm's code, not in config.json (vision_transformer.py, 1.0).
TANH = re.compile(
    r"vit_(base_patch32_siglip|so400m_patch16_siglip|giantopt_patch16_siglip)_.*|vit_large_patch16_siglip_(gap_)?512"
)
# Same names of tensors, another computation: post-norm blocks, parallel blocks, differential attention, no final norm.
FOREIGN = re.compile(
    r"vit_.*(_rpn_|_xp_|18x2|_dwee_|_dlittle_|_pwee_|_dpwee_|_radio_).*|vit_(dwee|dlittle|pwee|dpwee)_.*"
)


def is_timm(config: Mapping[str, Any]) -> bool:
    """Whether a config.json is timm's: it names an architecture and has no model_type."""
    return "architecture" in config and "model_type" not in config


def fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """Our config fields, as far as the architecture's name and the arguments state them."""
    architecture = str(config.get("architecture", "")).partition(".")[0]
    if FOREIGN.fullmatch(architecture):
        raise CheckpointError(
            f"config.json: {architecture} computes something else with the same names of tensors.",
            "Blocks that norm first, then attend, then the MLP.",
            "There is no such model here.",
        )
    found = _named_sizes(architecture) | _implied(architecture)
    found |= _pretrained(config)
    found |= _arguments(config.get("model_args") or {})
    if config.get("global_pool") in POOLING:
        found["pooling"] = POOLING[config["global_pool"]]
    elif config.get("global_pool"):
        raise CheckpointError(
            f"config.json: global_pool is {config['global_pool']!r}.", f"Known: {', '.join(POOLING)}.", ""
        )
    return found


def _named_sizes(architecture: str) -> dict[str, Any]:
    """What only the name says: the heads, and the picture size."""
    try:
        named = config_for(architecture)
    except ConfigError:
        return {}
    return {"num_attention_heads": named.num_attention_heads, "image_size": named.image_size}


def _implied(architecture: str) -> dict[str, Any]:
    implied: dict[str, Any] = {}
    if TANH.fullmatch(architecture):
        implied["hidden_act"] = "gelu_tanh"
    if "_clip_" in architecture:
        implied |= {"layer_norm_eps": 1e-5, "hidden_act": "quick_gelu" if "quickgelu" in architecture else "gelu"}
    return implied


def _pretrained(config: Mapping[str, Any]) -> dict[str, Any]:
    size = (config.get("pretrained_cfg") or config).get("input_size")
    return {"image_size": tuple(size[1:])} if isinstance(size, list | tuple) and len(size) == 3 else {}


def _arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    found = {ours: arguments[theirs] for theirs, ours in ARGUMENTS.items() if theirs in arguments}
    for size in ("image_size", "patch_size"):
        if size in found:
            found[size] = as_pair(found[size])
    if "global_pool" in arguments:
        found["pooling"] = POOLING.get(arguments["global_pool"], arguments["global_pool"])
    if "act_layer" in arguments:
        found["hidden_act"] = ACTIVATIONS.get(arguments["act_layer"], arguments["act_layer"])
    if arguments.get("no_embed_class"):
        found["position_covers"] = "patches"
    if "pos_embed" in arguments:
        found["position"] = "learned" if arguments["pos_embed"] == "learn" else "none"
    return found


def labels(config: Mapping[str, Any], count: int) -> list[str] | None:
    """The names of the classes, where config.json has them."""
    named = config.get("label_names") or (config.get("pretrained_cfg") or {}).get("label_names")
    if isinstance(named, dict):
        named = [named[key] for key in sorted(named, key=int)]
    return [str(name) for name in named] if isinstance(named, list) and len(named) == count else None


def architecture(config: ViTConfig) -> str | None:
    """A model of timm that these tensors fit, once `arguments` are given to it; None where timm has none."""
    if config.resnet is not None:
        return {
            (): "vit_tiny_r_s16_p8_224",
            (2, 2, 2, 2): "vit_small_r26_s32_224",
            (3, 4, 9): "vit_base_r50_s16_224",
            (3, 4, 6, 3): "vit_large_r50_s32_224",
        }.get(config.resnet.layers if config.resnet.width == 64 else (-1,))
    if config.mlp == "swiglu":
        return "vit_giant_patch14_dinov2"
    return "deit_tiny_distilled_patch16_224" if config.distillation_token else "vit_tiny_patch16_224"


def config_json(config: ViTConfig, labels: list[str], preprocess: dict[str, Any]) -> dict[str, Any]:
    """config.json that lets timm build the model from this folder (`timm.create_model("local-dir:…")`)."""
    name = architecture(config)
    arguments = {theirs: _json(getattr(config, ours)) for theirs, ours in ARGUMENTS.items()}
    arguments |= {
        "mlp_ratio": config.intermediate_size * (2 if config.mlp == "swiglu" else 1) / config.hidden_size,
        "global_pool": next(theirs for theirs, ours in POOLING.items() if ours == config.pooling),
        "fc_norm": config.final_norm == "pooled",
        # registers without a position: timm folds the class token's into the token while reading (writing.py)
        "no_embed_class": config.positioned_prefix < config.prefix_tokens,
        "pos_embed": "learn" if config.position == "learned" else "none",
    }
    if config.hidden_act not in ("gelu", "silu"):
        arguments["act_layer"] = config.hidden_act
    if config.resnet is not None:
        arguments.pop("img_size")  # timm's hybrids take it from the folder's input_size
        arguments["img_size"] = list(config.image_size)
    written: dict[str, Any] = {"architecture": name} if name else {}
    written |= {"num_classes": config.num_classes, "num_features": config.hidden_size, "model_args": arguments}
    written["global_pool"] = arguments["global_pool"]
    if config.num_classes and labels != [str(index) for index in range(config.num_classes)]:
        written["label_names"] = labels
    size = [config.num_channels, *config.image_size]
    written["pretrained_cfg"] = {"input_size": size, "num_classes": config.num_classes, **preprocess}
    return written


def _json(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
