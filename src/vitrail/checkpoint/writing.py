"""A model as the tensors and the JSON files of a format: everything but the writing itself."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
from torch import Tensor

from vitrail.checkpoint import google, hf_config, huggingface, preprocess, timm, timm_config
from vitrail.checkpoint.beside import stated_fields, stated_labels, stated_preprocess
from vitrail.checkpoint.capacity import fitted
from vitrail.checkpoint.detect import Match
from vitrail.checkpoint.files import Found
from vitrail.checkpoint.formats import FORMATS, table_named
from vitrail.checkpoint.hf_config import Family
from vitrail.checkpoint.reading import REGISTERS
from vitrail.checkpoint.rules import KEPT, Table, plan, untranslate
from vitrail.checkpoint.transforms import Sizes
from vitrail.checkpoint.understand import understand
from vitrail.config import Preprocess, ViTConfig
from vitrail.errors import CheckpointError, UsageError, did_you_mean

NAMES = ("native", "huggingface", "google", "timm", "torchvision", "jeonsworld")
MASK = f"{KEPT}mask_token"


@dataclass(frozen=True)
class Parts:
    """A model taken apart: what a format has to hold."""

    config: ViTConfig
    state: dict[str, Tensor]
    kept: dict[str, Tensor]
    preprocess: Preprocess
    labels: list[str]
    table: str = ""  # the table it was read by, and the prefix, so that it can go out as it came
    prefix: str = ""


@dataclass(frozen=True)
class Written:
    """What goes into the files."""

    parts: Parts  # as the format holds them
    tensors: dict[str, Tensor]
    table: Table
    prefix: str
    weights: str  # the usual name of the weight file
    config: dict[str, Any]
    preprocessor: dict[str, Any] | None = None
    dropped: list[str] = field(default_factory=list)

    @property
    def block(self) -> dict[str, Any]:
        """Everything about the model, for a weight file that stands alone."""
        return full_block(self.parts)


def written(parts: Parts, name: str, *, lossy: bool = False) -> Written:
    """The model in a format; an error where the format has no place for part of it."""
    if name not in NAMES:
        raise UsageError(f"There is no format {name!r}.", did_you_mean(name, NAMES), f"One of: {', '.join(NAMES)}.")
    if name == "native":
        return _native(parts)
    if name == "huggingface":
        return _hugging_face(parts)
    config, state, notes = fitted(parts.config, parts.state, name, lossy)
    parts = replace(parts, config=config, state=state, labels=parts.labels if config.num_classes else [])
    tables = {"google": _google_table, "timm": _timm_table}
    usual = tables[name](config) if name in tables else FORMATS[name].tables[0]
    result = _tensors(parts, name, usual, usual.prefixes[0])
    own = {"model_type": "vitrail", "vitrail": full_block(parts)}
    beside = own
    if name == "timm":
        beside = timm_config.config_json(config, parts.labels, preprocess.to_timm(parts.preprocess))
        beside["vitrail"] = own["vitrail"]
    return replace(
        result,
        config=beside,
        weights="model.npz" if name == "google" else "model.safetensors",
        dropped=[*notes, *result.dropped],
    )


def _tensors(parts: Parts, name: str, usual: Table, usual_prefix: str) -> Written:
    """Under the names the model came with where the format is the same, else under its usual names."""
    came_by = table_named(parts.table)
    choices = [(usual, usual_prefix)]
    # config.json of Hugging Face names one family, so there the names are that family's
    if came_by is usual or (came_by in FORMATS[name].tables and name != "huggingface"):
        choices.insert(0, (came_by, parts.prefix))
    for table, prefix in choices:
        everything = {**parts.state, **_kept_for(parts, table)}
        tensors, left = untranslate(table, everything, prefix=prefix, sizes=_sizes(parts.config))
        lost = [key for key in left if not key.startswith(KEPT)]
        if not lost:
            unplaced = [f"{key.removeprefix(KEPT)}: no model uses it, and {name} has no place for it" for key in left]
            return Written(parts, tensors, table, prefix, "model.safetensors", {}, dropped=unplaced)
    raise CheckpointError(
        f"The {name} format has no place for: {', '.join(lost[:6])}.",
        "Nothing of a model is dropped in silence.",
        "format='native' holds every model.",
    )


def _kept_for(parts: Parts, table: Table) -> dict[str, Tensor]:
    """The tensors nobody uses, and those a library wants to find although they are empty or zero."""
    kept = {key if key == REGISTERS else KEPT + key: tensor for key, tensor in parts.kept.items()}
    dinov3, registers = "DINOv3" in table.name, "DINOv2 with registers" in table.name or "dinov2 (orig" in table.name
    if MASK not in kept and (dinov3 or registers):
        zeros = parts.state["stem.proj.weight"].new_zeros(1, parts.config.hidden_size)
        kept[MASK] = zeros[None] if dinov3 else zeros
    if dinov3 and not parts.config.num_register_tokens:
        kept[REGISTERS] = parts.state["stem.proj.weight"].new_zeros(1, 0, parts.config.hidden_size)
    return kept


def _sizes(config: ViTConfig) -> Sizes:
    return Sizes(config.head_dim, config.patch_size, config.num_channels, config.table_grid)


def _google_table(config: ViTConfig) -> Table:
    """big_vision's names where only big_vision has such a model, else the published ones."""
    no_row_for_class = config.class_token and config.positioned_prefix == 0
    only_there = config.pooling == "map" or config.position != "learned" or no_row_for_class
    return google.BIG_VISION if only_there else google.TABLES[0]


def _timm_table(config: ViTConfig) -> Table:
    tables = {table.name: table for table in timm.TABLES}
    if config.num_register_tokens and config.position_covers == "class":
        # timm reads the original files of DINOv2 and folds the class token's position into the token by itself
        return tables["dinov2 (original, SwiGLU)" if config.mlp == "swiglu" else "dinov2 (original)"]
    root_only = config.resnet is not None and not config.resnet.layers
    return tables["timm (R+Ti hybrid)" if root_only else "timm"]


# our own layout, which is that of Hugging Face wherever transformers has such a model
def _native(parts: Parts) -> Written:
    family, reasons = _family(parts)
    if not reasons:
        return _as_family(parts, family)
    result = _tensors(parts, "vitrail", FORMATS["vitrail"].tables[0], "")
    config = {"model_type": "vitrail", "architectures": ["VisionTransformer"], "vitrail": full_block(parts)}
    return replace(result, config=config, preprocessor=preprocess.to_hugging_face(parts.preprocess))


def _hugging_face(parts: Parts) -> Written:
    family, reasons = _family(parts)
    if reasons:
        raise CheckpointError(
            f"transformers has no such model; the nearest is {family.model_type}, which cannot have: "
            f"{', '.join(reasons)}.",
            "Nothing of a model is dropped in silence.",
            "format='native' holds every model.",
        )
    return _as_family(parts, family)


def _family(parts: Parts) -> tuple[Family, list[str]]:
    """The family it came as if it still is one; else the one it is, or is nearest to, with what is in the way."""
    for family in hf_config.FAMILIES:
        if not hf_config.mismatches(parts.config, family) and _hf_table(parts.config, family)[0].name == parts.table:
            return family, []
    return hf_config.nearest_family(parts.config)


def _as_family(parts: Parts, family: Family) -> Written:
    table, prefix = _hf_table(parts.config, family)
    result = _tensors(parts, "huggingface", table, prefix)
    config = hf_config.config_json(parts.config, family, parts.labels)
    if family.model_type == "dinov2":
        config["use_mask_token"] = "mask_token" in parts.kept
    if family.nested:
        config["vision_config"]["vision_use_head"] = "head.probe" in parts.kept
    dtypes = {str(tensor.dtype).removeprefix("torch.") for tensor in result.tensors.values()}
    config["dtype"] = dtypes.pop() if len(dtypes) == 1 else "float32"
    result = replace(result, config=config, preprocessor=preprocess.to_hugging_face(parts.preprocess))
    block = _what_is_missing(result)
    return replace(result, config={**config, "vitrail": block}) if block else result


def _hf_table(config: ViTConfig, family: Family) -> tuple[Table, str]:
    """The rows and the prefix `save_pretrained` uses for this family."""
    tables, gated = {table.name: table for table in huggingface.TABLES}, config.mlp == "swiglu"
    kind = family.model_type
    if kind in ("vit", "deit", "ijepa"):
        task = "teacher" if family.fixed["distillation_token"] else "classes"
        task = task if config.num_classes else "features"
        words = "names on disk" + (", distillation token unread" if config.num_register_tokens else "")
        return tables[f"huggingface ViT for {task} ({words})"], f"{kind}." if config.num_classes else ""
    if kind.startswith("dinov2"):
        registers = " with registers" if config.num_register_tokens else ""
        name = f"huggingface DINOv2{registers} (names on disk{', SwiGLU' if gated else ''})"
        return tables[name], f"{kind}." if config.num_classes else ""
    if kind == "dinov3_vit":
        key_bias = ", with key bias" if config.key_bias else ""
        return tables[f"huggingface DINOv3 (names on disk{', SwiGLU' if gated else ''}{key_bias})"], ""
    if kind.startswith("siglip"):
        return tables[f"huggingface SigLIP for {'classes' if config.num_classes else 'features'}"], "vision_model."
    return huggingface.CLIP, "vision_model."


def _what_is_missing(result: Written) -> dict[str, Any]:
    """What reading the Hugging Face part alone would get wrong: this is what goes into the `vitrail` block."""
    parts, shapes = result.parts, {key: tensor.to("meta") for key, tensor in result.tensors.items()}
    found = Found(Path(), {}, config=result.config, preprocessor=result.preprocessor)
    match = Match(result.table, result.prefix, plan(result.table, shapes, result.prefix))
    state = {key: tensor.to("meta") for key, tensor in parts.state.items()}
    read = understand(match, shapes, state, stated_fields(found), {}).config
    ours, theirs = msgspec.to_builtins(parts.config), msgspec.to_builtins(read)
    block: dict[str, Any] = {}
    fields = {name: value for name, value in ours.items() if theirs[name] != value}
    block |= {"config": fields} if fields else {}
    if stated_preprocess(found, parts.config) != parts.preprocess:
        block["preprocess"] = msgspec.to_builtins(parts.preprocess)
    if (stated_labels(found, parts.config) or []) != parts.labels:
        block["labels"] = parts.labels
    return block


def full_block(parts: Parts) -> dict[str, Any]:
    """All of the config, the preprocessing and the labels."""
    block = {"config": msgspec.to_builtins(parts.config), "preprocess": msgspec.to_builtins(parts.preprocess)}
    return {**block, "labels": parts.labels} if parts.labels else block
