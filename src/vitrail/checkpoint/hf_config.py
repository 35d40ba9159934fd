"""config.json of transformers, read as our config fields and written from them.

Each family is a row: which of our fields it stores under which name, with transformers' default, and what is fixed
about it. A model of ours that agrees with a row's fixed part can be opened by transformers as that family.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from vitrail.config import ViTConfig, as_pair
from vitrail.errors import CheckpointError

ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_python": "gelu",
    "quick_gelu": "quick_gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
ACTIVATION_NAMES = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}

Names = Mapping[str, tuple[str, Any]]  # ours: (theirs, what transformers takes where the file is silent)

SIZES: Names = {
    "hidden_size": ("hidden_size", 768),
    "num_hidden_layers": ("num_hidden_layers", 12),
    "num_attention_heads": ("num_attention_heads", 12),
    "image_size": ("image_size", 224),
    "patch_size": ("patch_size", 16),
    "num_channels": ("num_channels", 3),
}
VIT_NAMES: Names = {
    **SIZES,
    "intermediate_size": ("intermediate_size", 3072),
    "hidden_act": ("hidden_act", "gelu"),
    "hidden_dropout_prob": ("hidden_dropout_prob", 0.0),
    "attention_probs_dropout_prob": ("attention_probs_dropout_prob", 0.0),
    "initializer_range": ("initializer_range", 0.02),
    "layer_norm_eps": ("layer_norm_eps", 1e-12),
    "qkv_bias": ("qkv_bias", True),
    "head_dim": ("head_dim", None),
}
DINOV2_NAMES: Names = {
    **{ours: named for ours, named in VIT_NAMES.items() if ours != "intermediate_size"},
    "layer_norm_eps": ("layer_norm_eps", 1e-6),
    "patch_size": ("patch_size", 14),
    "layer_scale": ("layerscale_value", 1.0),
    "drop_path_rate": ("drop_path_rate", 0.0),
}
TOWER_NAMES: Names = {
    **SIZES,
    "intermediate_size": ("intermediate_size", 3072),
    "hidden_act": ("hidden_act", "gelu_pytorch_tanh"),
    "layer_norm_eps": ("layer_norm_eps", 1e-6),
    "attention_probs_dropout_prob": ("attention_dropout", 0.0),
}
DINOV3_NAMES: Names = {
    **TOWER_NAMES,
    "hidden_size": ("hidden_size", 384),
    "num_attention_heads": ("num_attention_heads", 6),
    "intermediate_size": ("intermediate_size", 1536),
    "hidden_act": ("hidden_act", "gelu"),
    "layer_norm_eps": ("layer_norm_eps", 1e-5),
    "initializer_range": ("initializer_range", 0.02),
    "num_register_tokens": ("num_register_tokens", 0),
    "layer_scale": ("layerscale_value", 1.0),
    "drop_path_rate": ("drop_path_rate", 0.0),
    "rotary_base": ("rope_theta", 100.0),
    "qkv_bias": ("query_bias", True),
    "key_bias": ("key_bias", False),
}

PLAIN: dict[str, Any] = {
    "resnet": None,
    "patch_bias": True,
    "pre_norm": False,
    "class_token": True,
    "distillation_token": False,
    "num_register_tokens": 0,
    "position": "learned",
    "key_bias": True,
    "qk_norm": False,
    "mlp": "dense",
    "layer_scale": None,
    "pooling": "token",
    "final_norm": "tokens",
}


def without(fixed: dict[str, Any], *names: str) -> dict[str, Any]:
    """The fixed part, with these left open."""
    return {name: value for name, value in fixed.items() if name not in names}


@dataclass(frozen=True)
class Family:
    """One model of transformers, as far as it is one of ours."""

    model_type: str
    features: str | None  # the class that ends in features, and the one that ends in classes
    classes: str | None
    names: Names
    fixed: dict[str, Any] = field(default_factory=lambda: PLAIN)
    pooler: bool = False  # its features may pass a dense layer and tanh
    square: bool = False  # image and patch are squares, heads divide the width
    resampling: str = "hf"
    nested: bool = False  # the sizes are in `vision_config`
    fits: Callable[[ViTConfig], bool] = lambda config: True


def _gated_width(config: ViTConfig) -> bool:
    """DINOv2 derives the MLP's width from an integer ratio."""
    ratio = dinov2_ratio(config)
    return ratio is not None


def dinov2_ratio(config: ViTConfig) -> int | None:
    """The mlp_ratio that gives this width, if there is one."""
    widths = {ratio: dinov2_width(config.hidden_size, ratio, config.mlp == "swiglu") for ratio in range(1, 65)}
    return next((ratio for ratio, width in widths.items() if width == config.intermediate_size), None)


def dinov2_width(hidden: int, ratio: float, gated: bool) -> int:
    """SwiGLU keeps two thirds, rounded up to a multiple of 8."""
    width = int(hidden * ratio)
    return (int(width * 2 / 3) + 7) // 8 * 8 if gated else width


def _dinov2_head(config: ViTConfig) -> bool:
    """Features are the class token; classes are read from it and the patches' mean."""
    wanted = "token_and_mean" if config.num_classes else "token"
    return _gated_width(config) and config.pooling == wanted


def _one_register(config: ViTConfig) -> bool:
    """A DeiT whose second token no classifier reads."""
    return config.num_register_tokens == 1 and config.position_covers == "all"


DINOV2_FIXED = without(PLAIN, "layer_scale", "pooling", "mlp") | {"layer_scale": ...}  # ...: any value but None
NO_CLASS = PLAIN | {"class_token": False, "pooling": "mean"}

FAMILIES = (
    Family("vit", "ViTModel", "ViTForImageClassification", VIT_NAMES, pooler=True),
    Family(
        "deit",
        "DeiTModel",
        "DeiTForImageClassificationWithTeacher",
        VIT_NAMES,
        PLAIN | {"distillation_token": True},
        pooler=True,
    ),
    Family(
        "deit",
        None,
        "DeiTForImageClassification",
        VIT_NAMES,
        without(PLAIN, "num_register_tokens"),
        fits=_one_register,
    ),
    Family("dinov2", "Dinov2Model", "Dinov2ForImageClassification", DINOV2_NAMES, DINOV2_FIXED, fits=_dinov2_head),
    Family(
        "dinov2_with_registers",
        "Dinov2WithRegistersModel",
        "Dinov2WithRegistersForImageClassification",
        {**DINOV2_NAMES, "patch_size": ("patch_size", 16), "num_register_tokens": ("num_register_tokens", 4)},
        without(DINOV2_FIXED, "num_register_tokens"),
        resampling="timm",  # antialias=True
        fits=lambda config: config.num_register_tokens > 0 and _dinov2_head(config),
    ),
    Family("ijepa", "IJepaModel", "IJepaForImageClassification", VIT_NAMES, NO_CLASS),
    Family(
        "siglip_vision_model",
        "SiglipVisionModel",
        None,
        TOWER_NAMES,
        NO_CLASS | {"pooling": "map"},
        square=True,
    ),
    Family(
        "siglip",
        None,
        "SiglipForImageClassification",
        TOWER_NAMES,
        NO_CLASS,
        square=True,
        nested=True,
    ),
    Family(
        "clip_vision_model",
        "CLIPVisionModel",
        None,
        {
            **TOWER_NAMES,
            "patch_size": ("patch_size", 32),
            "hidden_act": ("hidden_act", "quick_gelu"),
            "layer_norm_eps": ("layer_norm_eps", 1e-5),
            "initializer_range": ("initializer_range", 0.02),
        },
        PLAIN | {"patch_bias": False, "pre_norm": True, "final_norm": "pooled"},
        square=True,
    ),
    Family(
        "dinov3_vit",
        "DINOv3ViTModel",
        None,
        DINOV3_NAMES,
        without(PLAIN, "num_register_tokens", "layer_scale", "mlp", "key_bias")
        | {"position": "rotary", "layer_scale": ...},
        square=True,
    ),
)
# read, never written: removed from transformers, or the same model as a family above by another name
HYBRID = Family(
    "vit-hybrid", None, "ViTHybridForImageClassification", {**VIT_NAMES, "patch_size": ("patch_size", 1)}, PLAIN
)
ALIASES = {
    "clip": "clip_vision_model",
    "siglip_model": "siglip",
    "vit_msn": "vit",
    "vit_mae": "vit",
    "vit_hybrid": "vit-hybrid",
}


def family_of(config: Mapping[str, Any]) -> Family | None:
    """The family a config.json belongs to, if it is one of those above."""
    kind = ALIASES.get(str(config.get("model_type")), config.get("model_type"))
    architectures = config.get("architectures") or []
    named = [family for family in (*FAMILIES, HYBRID) if family.model_type == kind]
    if kind == "siglip" and "SiglipForImageClassification" not in architectures:
        return next(family for family in FAMILIES if family.model_type == "siglip_vision_model")
    exact = [family for family in named if {family.features, family.classes} & set(architectures)]
    return next(iter(exact or named), None)


def fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """Our config fields, as a config.json of transformers states them; empty for a family we do not know."""
    family = family_of(config)
    if family is None:
        return {}
    sizes = config.get("vision_config") or config
    found = {ours: sizes.get(theirs, default) for ours, (theirs, default) in family.names.items()}
    found["position_resampling"] = family.resampling
    found["initializer"] = "hf"
    found["hidden_act"] = _activation(found["hidden_act"])
    for size in ("image_size", "patch_size"):
        found[size] = as_pair(found[size])
    found |= _fixed_fields(family, sizes)
    if found.get("head_dim") is None:
        found.pop("head_dim", None)
    if family.model_type.startswith("dinov2"):
        gated = bool(sizes.get("use_swiglu_ffn", False))
        found["intermediate_size"] = dinov2_width(found["hidden_size"], sizes.get("mlp_ratio", 4), gated)
        found |= {"mlp": "swiglu", "hidden_act": "silu"} if gated else {"mlp": "dense"}
    if family.model_type == "dinov3_vit":
        found["mlp"] = "swiglu" if sizes.get("use_gated_mlp") else "dense"
    return found


def _fixed_fields(family: Family, sizes: Mapping[str, Any]) -> dict[str, Any]:
    known = {name: value for name, value in family.fixed.items() if value is not ... and name != "resnet"}
    if family is HYBRID:
        known["resnet"] = _bit_stem(sizes.get("backbone_config") or {})
    if family.model_type == "siglip_vision_model" and not sizes.get("vision_use_head", True):
        known["pooling"] = "mean"
    if family.pooler:
        pooler = sizes.get("pooler_act", "tanh")
        if pooler != "tanh":
            raise CheckpointError(f"config.json: pooler_act is {pooler!r}.", "The pooler ends in tanh.", "")
    return known


def _bit_stem(backbone: Mapping[str, Any]) -> dict[str, Any]:
    return {"layers": tuple(backbone.get("depths", (3, 4, 9)))}


def _activation(name: str) -> str:
    if name not in ACTIVATIONS:
        raise CheckpointError(
            f"config.json: hidden_act is {name!r}.", f"Known: {', '.join(ACTIVATIONS)}.", "No such activation here yet."
        )
    return ACTIVATIONS[name]


def mismatches(config: ViTConfig, family: Family) -> list[str]:
    """What keeps a model of ours from being one of this family."""
    reasons = [
        f"{name}={_shown(getattr(config, name))}"
        for name, value in family.fixed.items()
        if (getattr(config, name) is None if value is ... else getattr(config, name) != value)
    ]
    if (family.classes if config.num_classes else family.features) is None:
        reasons.append(f"num_classes={config.num_classes}")
    if config.representation_size and not (family.pooler and not config.num_classes):
        reasons.append(f"representation_size={config.representation_size}")
    elif config.representation_size and config.representation_act != "tanh":
        reasons.append(f"representation_act={config.representation_act!r}")
    if config.position == "learned" and not _position_fits(config, family):
        reasons.append(f"position_covers={config.position_covers!r}")
    reasons += _head_reasons(config, family)
    if family.square and any(len(set(size)) > 1 for size in (table_size(config), config.patch_size)):
        reasons.append("sizes that are not square")
    if not family.fits(config) and not reasons:
        reasons.append("sizes this family derives in another way")
    return reasons


def _position_fits(config: ViTConfig, family: Family) -> bool:
    if family.fits is _one_register:
        return config.position_covers == "all"
    return config.positioned_prefix == config.class_token + config.distillation_token


def _head_reasons(config: ViTConfig, family: Family) -> list[str]:
    counts = {len(config.heads_in(layer)) for layer in range(config.num_hidden_layers)}
    if len(counts) > 1 or 0 in counts:
        return ["layers with different numbers of heads"]
    heads = counts.pop()
    odd = config.head_dim != config.hidden_size / heads
    return [f"head_dim={config.head_dim} with {heads} heads"] if odd and "head_dim" not in family.names else []


def _shown(value: object) -> str:
    return repr(value) if isinstance(value, str | int | float | bool | type(None)) else type(value).__name__


def table_size(config: ViTConfig) -> tuple[int, int]:
    """The picture size the position table was made for."""
    if config.position != "learned" or config.grid == config.table_grid:
        return config.image_size
    return config.table_grid[0] * config.stride[0], config.table_grid[1] * config.stride[1]


def nearest_family(config: ViTConfig) -> tuple[Family, list[str]]:
    """The family a model of ours is, or is nearest to, and what is in the way."""
    ranked = [(len(reasons), family, reasons) for family in FAMILIES for reasons in [mismatches(config, family)]]
    _, family, reasons = min(ranked, key=lambda item: item[0])
    return family, reasons


def config_json(config: ViTConfig, family: Family, labels: list[str]) -> dict[str, Any]:
    """config.json for a model of ours that is one of this family."""
    sizes = {theirs: _json(getattr(config, ours)) for ours, (theirs, _) in family.names.items()}
    sizes["hidden_act"] = ACTIVATION_NAMES[config.hidden_act]
    sizes["image_size"] = _json(table_size(config))
    heads = len(config.heads_in(0))
    sizes["num_attention_heads"] = heads
    if config.head_dim == config.hidden_size / heads:
        sizes.pop("head_dim", None)
    if family.pooler:
        sizes["pooler_output_size"] = config.representation_size or config.hidden_size
        sizes["pooler_act"] = "tanh"
    if family.model_type.startswith("dinov2"):
        sizes |= {"mlp_ratio": dinov2_ratio(config), "use_swiglu_ffn": config.mlp == "swiglu"}
        sizes["hidden_act"] = "gelu" if config.mlp == "swiglu" else sizes["hidden_act"]
    if family.model_type == "dinov3_vit":
        sizes |= {"value_bias": config.qkv_bias, "use_gated_mlp": config.mlp == "swiglu"}
    written: dict[str, Any] = {
        "model_type": family.model_type,
        "architectures": [family.classes if config.num_classes else family.features],
    }
    if config.num_classes:
        written["id2label"] = {str(index): label for index, label in enumerate(labels)}
        written["label2id"] = {label: index for index, label in enumerate(labels)}
    if family.nested:
        return written | {"vision_config": {"model_type": "siglip_vision_model", "vision_use_head": False, **sizes}}
    return written | sizes


def _json(value: Any) -> Any:
    """An int for a square, a list for a pair."""
    if isinstance(value, tuple):
        return value[0] if len(value) == 2 and value[0] == value[1] else list(value)
    return value


def labels(config: Mapping[str, Any], count: int) -> list[str] | None:
    """The names of the classes, by index; None where a config.json names none."""
    named = config.get("id2label")
    if not count or family_of(config) is None:
        return None
    if not named:  # transformers leaves out its default of two
        return [f"LABEL_{index}" for index in range(count)] if count == 2 else None
    names = {int(index): str(name) for index, name in named.items() if str(index).isdigit()}
    if sorted(names) != list(range(count)):
        raise CheckpointError(
            f"config.json names {len(named)} classes; the classifier has {count}.",
            "One name for each output, numbered from 0.",
            "Correct id2label.",
        )
    return [names[index] for index in range(count)]
