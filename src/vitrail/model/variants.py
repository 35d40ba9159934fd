"""Models by name: "B/16", "R50+L/32", "vit_base_patch16_224", "google/vit-base-patch16-224", "vit_b_16".

Two tables (plain sizes, hybrid stems) and a parser for each way of spelling. Sizes are those of the papers and of
google-research/big_vision, models/vit.py `decode_variant`; the hybrids' those of vision_transformer, models_config.py.
"""

import re
from typing import TYPE_CHECKING, Any

from vitrail.config import ResNetStem, ViTConfig, build
from vitrail.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from vitrail.model.vit import VisionTransformer

# name: hidden size, blocks, MLP width, heads
SIZES: dict[str, tuple[int, int, int, int]] = {
    "mu": (32, 1, 128, 2),
    "Ti": (192, 12, 768, 3),
    "S": (384, 12, 1536, 6),
    "M": (512, 12, 2048, 8),
    "B": (768, 12, 3072, 12),
    "L": (1024, 24, 4096, 16),
    "So400m": (1152, 27, 4304, 16),
    "H": (1280, 32, 5120, 16),
    "g": (1408, 40, 6144, 16),
    "g-opt": (1536, 40, 6144, 16),
    "G": (1664, 48, 8192, 16),
    "G-opt": (1536, 48, 8192, 16),
    "e": (1792, 56, 15360, 16),
}

# name: units per stage, patch size on the stem's feature map
HYBRIDS: dict[str, tuple[tuple[int, ...], int]] = {
    "R+Ti/16": ((), 8),  # root only; 8 x 8 patches of a map at 1/4: the real stride is 32, whatever the name says
    "R26+S/32": ((2, 2, 2, 2), 1),
    "R26+B/32": ((2, 2, 2, 2), 1),
    "R50+B/16": ((3, 4, 9), 1),
    "R50+L/32": ((3, 4, 6, 3), 1),
}

DEFAULT_PATCH = {"H": 14, "g": 14, "G": 14, "g-opt": 14, "G-opt": 14, "e": 14, "So400m": 14}
_SPOKEN = {"tiny": "Ti", "small": "S", "medium": "M", "base": "B", "large": "L", "huge": "H", "giant": "g"}
_SPOKEN |= {"gigantic": "G", "so400m": "So400m", "b": "B", "l": "L", "h": "H", "s": "S"}

# What a family of published checkpoints changes beyond sizes.
_REGISTERS: dict[str, Any] = {"num_register_tokens": 4, "position_covers": "class"}
_DINOV2: dict[str, Any] = {"layer_scale": 1e-5, "num_classes": 0}
_DINOV2_GIANT: dict[str, Any] = {"hidden_size": 1536, "num_attention_heads": 24, "intermediate_size": 4096}
_DINOV2_GIANT |= {"mlp": "swiglu", "hidden_act": "silu"}  # unlike big_vision's g
_DISTILLED: dict[str, Any] = {"distillation_token": True}
_DEIT3: dict[str, Any] = {"layer_scale": 1e-6, "position_covers": "patches"}
_SIGLIP: dict[str, Any] = {"class_token": False, "pooling": "map", "hidden_act": "gelu_tanh", "num_classes": 0}


def config_for(name: str, **changes: Any) -> ViTConfig:
    """The config of a named variant, with `changes` to any field."""
    for parse in (_parse_short, _parse_timm, _parse_hugging_face, _parse_torchvision):
        fields = parse(name)
        if fields is not None:
            return build(ViTConfig, fields | changes)
    raise ConfigError(
        f"No model is called {name!r}.",
        did_you_mean(name, [*(f"{size}/{DEFAULT_PATCH.get(size, 16)}" for size in SIZES), *HYBRIDS]),
        "Names are like B/16, R50+B/16, vit_base_patch16_224, google/vit-base-patch16-224: see `vitrail models`.",
    )


def plain(size: str, patch: int, image: int = 224) -> dict[str, Any]:
    """Config fields of a plain variant."""
    hidden, layers, mlp, heads = SIZES[size]
    return {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "intermediate_size": mlp,
        "num_attention_heads": heads,
        "patch_size": patch,
        "image_size": image,
    }


def hybrid(name: str, image: int = 224) -> dict[str, Any]:
    """Config fields of a hybrid variant."""
    layers, patch = HYBRIDS[name]
    size = name.partition("+")[2].partition("/")[0]
    return plain(size, patch, image) | {"resnet": ResNetStem(layers=layers)}


def _parse_short(name: str) -> dict[str, Any] | None:
    """B/16, ViT-L/32, R50-ViT-B/16 or R50+ViT-B/16, H (its usual patch)."""
    short = name.replace("ViT-", "").replace("ViT_", "")
    short = re.sub(r"^(R\d*)-", r"\1+", short)
    if short in HYBRIDS:
        return hybrid(short)
    size, _, patch = short.partition("/")
    if size not in SIZES or (patch and not patch.isdigit()):
        return None
    return plain(size, int(patch) if patch else DEFAULT_PATCH.get(size, 16))


def _parse_timm(name: str) -> dict[str, Any] | None:
    """vit_base_patch16_224.augreg_in21k, vit_small_r26_s32_224, deit_tiny_distilled_patch16_224, ..._reg4_dinov2."""
    base = name.partition(".")[0]
    hybrids = {"tiny_r_s16_p8": "R+Ti/16", "small_r26_s32": "R26+S/32", "base_r26_s32": "R26+B/32"}
    hybrids |= {"base_r50_s16": "R50+B/16", "large_r50_s32": "R50+L/32"}
    found = re.fullmatch(r"vit_(\w+?_r\d*_s\d+(?:_p8)?)_(\d+)", base)
    if found and found[1] in hybrids:
        return hybrid(hybrids[found[1]], int(found[2]))
    found = re.fullmatch(r"(vit|deit3?)_(\w+?)(_distilled)?_patch(\d+)(\w*)", base)
    if not found or found[2] not in _SPOKEN:
        return None
    family, size, distilled, patch, rest = found.groups()
    fields = _family(_SPOKEN[size], int(patch), [family, *rest.split("_"), "distilled" if distilled else ""])
    if fields and fields.get("num_register_tokens"):  # timm adds DINOv2's class position into the class token
        fields["position_covers"] = "patches"
    return fields


def _parse_hugging_face(name: str) -> dict[str, Any] | None:
    """google/vit-base-patch16-224-in21k, facebook/deit-base-distilled-patch16-224, facebook/dinov2-base."""
    base = name.rpartition("/")[2].lower()
    if re.fullmatch(r"vit-hybrid-base-bit-\d+", base):
        return hybrid("R50+B/16", int(base.rpartition("-")[2]))
    found = re.fullmatch(r"dinov2-(with-registers-)?(small|base|large|giant)", base)
    if found:
        return _family(_SPOKEN[found[2]], 14, ["dinov2", "518", "reg4" if found[1] else ""])
    found = re.fullmatch(r"dino-vit([sb])(\d+)", base)
    if found:
        return plain(_SPOKEN[found[1]], int(found[2])) | {"num_classes": 0}
    found = re.fullmatch(r"(vit|deit|siglip|dinov2)-(\w+?)(-distilled)?-patch(\d+)((?:-\w+)*)", base)
    if not found or found[2] not in _SPOKEN:
        return None
    family, size, distilled, patch, rest = found.groups()
    return _family(_SPOKEN[size], int(patch), [family, *rest.split("-"), "distilled" if distilled else ""])


def _parse_torchvision(name: str) -> dict[str, Any] | None:
    """vit_b_16, vit_l_32, vit_h_14."""
    found = re.fullmatch(r"vit_([blh])_(\d+)", name)
    return plain(_SPOKEN[found[1]], int(found[2])) if found else None


def _family(size: str, patch: int, words: list[str]) -> dict[str, Any] | None:
    """Sizes plus what the words of a published name change; None where a word means a model we do not know."""
    pixels = [int(word) for word in words if word.isdigit()]
    said = {word for word in words if word and not word.isdigit()}
    if not said <= {"vit", "deit", "deit3", "dinov2", "siglip", "reg4", "distilled", "in21k"}:
        return None
    image = pixels[0] if pixels else 518 if "dinov2" in said else 224
    fields = plain(size, patch, image)
    for word, changes in (("deit3", _DEIT3), ("dinov2", _DINOV2), ("siglip", _SIGLIP), ("distilled", _DISTILLED)):
        fields |= changes if word in said else {}
    if "dinov2" in said and size == "g":
        fields |= _DINOV2_GIANT
    if "reg4" in said:
        fields |= _REGISTERS
    if "siglip" in said and image % patch:  # So400m/14 at 384: 27 whole patches a side, six pixels unseen
        fields |= {"ragged_edge": "crop"}
    return fields


def named_models() -> list[dict[str, Any]]:
    """Every plain size with its usual patch and every hybrid: name, sizes and parameters (built without allocating)."""
    from vitrail.model.vit import build_empty

    names = [f"{size}/{DEFAULT_PATCH.get(size, 16)}" for size in SIZES] + list(HYBRIDS)
    shown = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "grid")
    rows = []
    for name in names:
        config = config_for(name)
        parameters = sum(parameter.numel() for parameter in build_empty(config).parameters())
        rows.append({"name": name} | {field: getattr(config, field) for field in shown} | {"parameters": parameters})
    return rows


def create(name: str, *, seed: int | None = None, **changes: Any) -> "VisionTransformer":
    """A model with fresh weights, by name, ready to evaluate; `changes` are ViTConfig fields."""
    from vitrail.model import vit

    return vit.create(config_for(name, **changes), seed)
