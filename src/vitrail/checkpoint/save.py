"""A model into the files of a format, each of them whole or not there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vitrail.checkpoint import container
from vitrail.checkpoint.atomic import replacing
from vitrail.checkpoint.files import ENDINGS, INDEX
from vitrail.checkpoint.writing import Parts, Written, written
from vitrail.errors import UsageError
from vitrail.model.vit import VisionTransformer

FILES = (".npz", ".safetensors")


def save(model: VisionTransformer, directory: Path | str, format: str = "native", *, lossy: bool = False) -> list[Path]:
    """Write the model in a format: a folder, or one file where the name ends in .npz or .safetensors.

    native is the layout of Hugging Face; the others: huggingface (native, refused where transformers has no such
    model), google, timm, torchvision, jeonsworld.
    """
    return write(written(parts_of(model), format, lossy=lossy), Path(directory))


def parts_of(model: VisionTransformer) -> Parts:
    """The model taken apart; tensors nobody uses come along if it was loaded with some."""
    origin, kept = getattr(model, "origin", None), getattr(model, "kept", {})
    return Parts(
        config=model.config,
        state={key: tensor.detach() for key, tensor in model.state_dict().items()},
        kept=kept,
        preprocess=model.preprocess,
        labels=list(model.labels),
        table=origin.table if origin else "",
        prefix=origin.prefix if origin else "",
    )


def write(result: Written, target: Path) -> list[Path]:
    """The files of a format at `target`; their paths."""
    if target.suffix in FILES and not target.is_dir():
        return _write_file(result, target)
    if target.exists() and not target.is_dir():
        raise UsageError(f"{target} is a file.", "A folder, or a name that ends in .npz or .safetensors.", "")
    target.mkdir(parents=True, exist_ok=True)
    _refuse_other_weights(target, result.weights)
    weights = target / result.weights
    write_weights(weights, result, {})
    files = [weights]
    for name, content in (("config.json", result.config), ("preprocessor_config.json", result.preprocessor)):
        if content is not None:
            files.append(write_json(target / name, content))
    card = target / "README.md"
    if not card.exists():  # somebody may have written a better one
        with replacing(card) as file:
            file.write(model_card(result).encode())
        files.append(card)
    return files


def _write_file(result: Written, target: Path) -> list[Path]:
    """Weights that stand alone; what no tensor shows goes into the metadata, or for .npz into a .json of that name."""
    if target.suffix != Path(result.weights).suffix:
        raise UsageError(
            f"{target} is to hold what goes into {result.weights}.",
            "Google's format is .npz, the others are .safetensors.",
            f"Name it {target.with_suffix(Path(result.weights).suffix)}, or give a folder.",
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.suffix == ".safetensors":
        write_weights(target, result, {"vitrail": json.dumps(result.block)})
        return [target]
    write_weights(target, result, {})
    own = {"model_type": "vitrail", "vitrail": result.block}
    return [target, write_json(target.with_suffix(".json"), own)]


def write_weights(path: Path, result: Written, metadata: dict[str, str]) -> None:
    """The tensors, in the container of their format."""
    if path.suffix == ".npz":
        container.write_npz(path, result.tensors)
    else:
        container.write_safetensors(path, result.tensors, metadata)


def write_json(path: Path, content: dict[str, Any]) -> Path:
    """One JSON document, readable by people."""
    with replacing(path) as file:
        file.write((json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())
    return path


def _refuse_other_weights(folder: Path, name: str) -> None:
    """A folder holds one model: other weight files in it could be loaded instead of ours."""
    others = [file.name for file in folder.iterdir() if file.suffix in ENDINGS or file.name in INDEX]
    others = [other for other in others if other != name]
    if others:
        raise UsageError(
            f"{folder} already holds {', '.join(sorted(others)[:4])}.",
            "One model to a folder.",
            "Choose another folder.",
        )


def model_card(result: Written) -> str:
    """README.md: what the model is, in a few lines."""
    config, prepared = result.parts.config, result.parts.preprocess
    lines = [
        "---",
        "library_name: vitrail",
        "tags: [vision-transformer, image-classification]",
        "---",
        "",
        "# Vision Transformer",
        "",
        f"{config.hidden_size} wide, {config.num_hidden_layers} blocks of {config.num_attention_heads} heads, MLP "
        f"{config.intermediate_size}; pictures of {config.image_size[0]} x {config.image_size[1]}, patches of "
        f"{config.patch_size[0]} x {config.patch_size[1]}.",
        "",
        f"Pictures: resized to {prepared.resize} ({prepared.interpolation}), mean {prepared.mean}, std {prepared.std}.",
    ]
    if config.num_classes:
        shown = ", ".join(result.parts.labels[:10]) + (" …" if config.num_classes > 10 else "")
        lines += ["", f"{config.num_classes} classes: {shown}"]
    kind = result.config.get("model_type")
    if kind not in (None, "vitrail"):
        lines += ["", f"Opens in `transformers` as `{result.config['architectures'][0]}`."]
    return "\n".join([*lines, "", "`vitrail inspect` shows everything else.", ""])
