"""How pictures must be prepared: as each library writes it down, and as each does it where a file says nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from vitrail.config import Pair, Preprocess, ViTConfig, as_pair, build, literal_values

Colours = Mapping[str, tuple[float, ...]]
IMAGENET: Colours = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
HALF: Colours = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}
OPENAI: Colours = {"mean": (0.48145466, 0.4578275, 0.40821073), "std": (0.26862954, 0.26130258, 0.27577711)}

# transformers
PIL_FILTERS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
SQUASHED: dict[str, Any] = {"size": 224, "resample": 2, "do_center_crop": False, **HALF}
CROPPED: dict[str, Any] = {"size": {"shortest_edge": 224}, "resample": 3, "do_center_crop": True, "crop_size": 224}
PROCESSORS: dict[str, dict[str, Any]] = {  # what each takes where preprocessor_config.json is silent
    "ViT": SQUASHED,
    "DeiT": {**SQUASHED, "size": 256, "resample": 3, "do_center_crop": True, "crop_size": 224, **IMAGENET},
    "CLIP": {**CROPPED, **OPENAI},
    "Bit": {**CROPPED, **OPENAI},
    "Siglip": SQUASHED | {"resample": 3},
    "DINOv3ViT": {**SQUASHED, **IMAGENET},
    "ViTHybrid": {**CROPPED, **HALF},
}
SHORTER_SIDE = ("CLIP", "Bit", "ViTHybrid")  # in these an int is the shorter side, elsewhere a square


def from_hugging_face(stated: Mapping[str, Any], config: ViTConfig) -> Preprocess:
    """What a preprocessor_config.json asks for."""
    kind = str(stated.get("image_processor_type") or stated.get("feature_extractor_type") or "ViT")
    kind = kind.removesuffix("Fast").removesuffix("ImageProcessor").removesuffix("FeatureExtractor")
    defaults = PROCESSORS.get(kind, SQUASHED)
    said = {**defaults, **{key: value for key, value in stated.items() if value is not None}}
    resize = _hf_size(said["size"], shorter=kind in SHORTER_SIDE) if said.get("do_resize", True) else None
    cropped = bool(said.get("do_center_crop"))
    final = _hf_size(said.get("crop_size", resize), shorter=False) if cropped else resize
    # pixels come as 0..255 there, as 0..1 here
    unit = 255 * (said.get("rescale_factor", 1 / 255) if said.get("do_rescale", True) else 1.0)
    normal = said.get("do_normalize", True)
    mean = said.get("image_mean", said["mean"]) if normal else (0.0,) * config.num_channels
    std = said.get("image_std", said["std"]) if normal else (1.0,) * config.num_channels
    return _checked(
        config,
        size=final if isinstance(final, tuple) else config.image_size,
        resize=resize,
        interpolation=PIL_FILTERS[said["resample"]] if said["resample"] in range(6) else "bilinear",
        center_crop=cropped or isinstance(resize, int),
        mean=tuple(_rounded(value / unit) for value in mean),
        std=tuple(_rounded(value / unit) for value in std),
    )


def _rounded(value: float) -> float:
    """Without the last digits that 255 x (1 / 255) brings in."""
    return round(value, 12)


def _hf_size(size: Any, shorter: bool) -> int | Pair | None:
    if isinstance(size, dict):
        if "shortest_edge" in size:
            return int(size["shortest_edge"])
        return (int(size["height"]), int(size["width"])) if "height" in size else None
    if isinstance(size, int):
        return size if shorter else (size, size)
    return as_pair(size) if size else None


def to_hugging_face(preprocess: Preprocess) -> dict[str, Any]:
    """preprocessor_config.json for transformers' processors."""
    written: dict[str, Any] = {"do_resize": preprocess.resize is not None}
    if isinstance(preprocess.resize, int):
        written |= {"image_processor_type": "BitImageProcessor", "size": {"shortest_edge": preprocess.resize}}
    else:
        kind = "DeiTImageProcessor" if preprocess.center_crop else "ViTImageProcessor"
        written |= {"image_processor_type": kind, "size": _height_width(preprocess.resize or preprocess.size)}
    if preprocess.center_crop or isinstance(preprocess.resize, int):
        written |= {"do_center_crop": True, "crop_size": _height_width(preprocess.size)}
    return written | {
        "resample": PIL_FILTERS.index(preprocess.interpolation),
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(preprocess.mean),
        "image_std": list(preprocess.std),
    }


def _height_width(size: Pair) -> dict[str, int]:
    return {"height": size[0], "width": size[1]}


# timm
def from_timm(stated: Mapping[str, Any], config: ViTConfig) -> Preprocess:
    """What timm's pretrained_cfg asks for."""
    size = tuple(stated["input_size"][1:]) if "input_size" in stated else config.image_size
    scaled = tuple(math.floor(side / stated.get("crop_pct", 0.875)) for side in size)
    squashed = stated.get("crop_mode", "center") == "squash"
    interpolation = stated.get("interpolation", "bicubic")
    return _checked(
        config,
        size=size,
        # timm scales the shorter side; for a picture that is not square it scales until both sides cover
        resize=scaled[0] if not squashed and scaled[0] == scaled[1] else scaled,
        interpolation=interpolation if interpolation in literal_values(Preprocess, "interpolation") else "bicubic",
        center_crop=not squashed or scaled != size,
        mean=tuple(stated.get("mean", IMAGENET["mean"])),
        std=tuple(stated.get("std", IMAGENET["std"])),
    )


def to_timm(preprocess: Preprocess) -> dict[str, Any]:
    """The part of timm's pretrained_cfg that says how to prepare pictures."""
    scaled = as_pair(preprocess.resize or preprocess.size)
    crop_pct = preprocess.size[0] / scaled[0]
    if math.floor(preprocess.size[0] / crop_pct) != scaled[0]:
        crop_pct = preprocess.size[0] / (scaled[0] + 0.5)
    return {
        "interpolation": preprocess.interpolation,
        "crop_pct": crop_pct,
        "crop_mode": "center" if isinstance(preprocess.resize, int) else "squash",
        "mean": list(preprocess.mean),
        "std": list(preprocess.std),
    }


# where a file says nothing
def squashed(config: ViTConfig, interpolation: str = "bilinear", colours: Colours = HALF) -> Preprocess:
    """Resized to the model's size, aspect ratio lost."""
    size = config.image_size
    return _checked(config, size=size, resize=size, interpolation=interpolation, **colours)


def cropped(config: ViTConfig, resize: int, colours: Colours, interpolation: str = "bicubic") -> Preprocess:
    """The shorter side resized, then the middle."""
    return _checked(
        config,
        size=config.image_size,
        resize=resize,
        interpolation=interpolation,
        center_crop=True,
        **colours,
    )


def of_google(config: ViTConfig) -> Preprocess:
    """vision_transformer: squashed, bilinear, scaled to [-1, 1]."""
    return squashed(config)


def of_timm(config: ViTConfig) -> Preprocess:
    """timm's defaults; the distilled and the self-supervised ones use ImageNet's colours."""
    side = min(config.image_size)
    if config.pooling == "map":
        return squashed(config, "bicubic")
    colours = IMAGENET if config.distillation_token or config.layer_scale is not None else HALF
    return cropped(config, math.floor(side / (0.9 if side < 384 else 1.0)), colours)


def of_torchvision(config: ViTConfig) -> Preprocess:
    """256 to 224, bilinear, ImageNet's colours; the large pictures of SWAG bicubic without a margin."""
    side = min(config.image_size)
    if side >= 384:
        return cropped(config, side, IMAGENET)
    return cropped(config, round(side * 256 / 224), IMAGENET, "bilinear")


def of_hugging_face(config: ViTConfig) -> Preprocess:
    """ViT's processor, or DINOv2's, DeiT's, CLIP's, SigLIP's where it is one of those."""
    side = min(config.image_size)
    if config.pre_norm:
        return cropped(config, side, OPENAI)
    if config.pooling == "map":
        return squashed(config, "bicubic")
    if config.layer_scale is not None or config.distillation_token:
        return cropped(config, round(side * 256 / 224), IMAGENET)
    return squashed(config)


def _checked(config: ViTConfig, **fields: Any) -> Preprocess:
    """A Preprocess whose colours are as many as the model's channels."""
    for name in ("mean", "std"):
        values = fields[name]
        if len(values) != config.num_channels:
            fields[name] = (sum(values) / len(values),) * config.num_channels
    return build(Preprocess, fields)


DEFAULTS: dict[str, Callable[[ViTConfig], Preprocess]] = {
    "google": of_google,
    "jeonsworld": of_google,
    "huggingface": of_hugging_face,
    "timm": of_timm,
    "torchvision": of_torchvision,
}
