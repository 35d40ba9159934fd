"""The same model for other pictures or other classes: pure functions of a state dict and its config.

resolution   the position table, read off a new grid the way the model's origin does it
patch size   FlexiViT's pseudo-inverse: resized patches through the resized kernel give the same embedding
channels     a picture whose channels are all alike gives the same embedding, however many there are
classes      a new classifier, zero or drawn as the config's flavour draws it
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.config import Pair, Preprocess, ViTConfig, replace
from vitrail.model.init import fans, row
from vitrail.model.tokens import resample

State = dict[str, Tensor]
TABLE, KERNEL = "tokens.position.table", "stem.proj.weight"
CLASSIFIERS = ("head.classifier", "head.classifier_distilled")


@dataclass
class Adapted:
    """A model's parts on the way to another model, and what was done to them."""

    config: ViTConfig
    state: State
    preprocess: Preprocess
    labels: list[str]
    notes: list[str] = field(default_factory=list)


def adapt(model: Adapted, wanted: Mapping[str, Any], labels: Sequence[str] | None = None) -> Adapted:
    """The model with the image size, patch size, channels or classes that are wanted."""
    if "num_channels" in wanted:
        model = channels(model, wanted["num_channels"])
    if "patch_size" in wanted or "image_size" in wanted:
        size = wanted.get("image_size", model.config.image_size)
        model = resolution(model, size, wanted.get("patch_size", model.config.patch_size))
    if "num_classes" in wanted:
        model = classes(model, wanted["num_classes"], labels)
    return model


def resolution(model: Adapted, image_size: Pair, patch_size: Pair) -> Adapted:
    """For pictures of another size, or cut into patches of another size."""
    config = model.config
    old = config.table_grid if config.position == "learned" else None
    new = replace(config, image_size=image_size, patch_size=patch_size, position_grid=None)
    state, notes = dict(model.state), list(model.notes)
    if patch_size != config.patch_size:
        first = "stem.resnet.root.weight" if config.resnet and max(config.patch_size) == 1 else KERNEL
        state[first] = resize_kernel(state[first], patch_size)
        notes.append(f"patches of {_by(config.patch_size)} resized to {_by(patch_size)} by pseudo-inverse (FlexiViT)")
    if old and old != new.grid:
        state[TABLE] = resize_table(state[TABLE], config, new.grid)
        notes.append(f"positions of {_by(old)} patches resized to {_by(new.grid)} as {config.position_resampling} does")
    return Adapted(new, state, model.preprocess, model.labels, notes)


def resize_table(table: Tensor, config: ViTConfig, grid: Pair) -> Tensor:
    """A position table for another grid; rows of prefix tokens stay as they are."""
    prefix = config.positioned_prefix
    # Google's zoom computes in double precision (scipy.ndimage); the others in the table's own.
    wide = table.double() if config.position_resampling == "google" else table
    patches = resample(wide[:, prefix:], config.table_grid, grid, config.position_resampling)
    return torch.cat([table[:, :prefix], patches.to(table.dtype)], dim=1)


def resize_kernel(kernel: Tensor, size: Pair) -> Tensor:
    """A patch projection for patches of another size (Beyer et al. 2023, FlexiViT, section 3.4).

    With B the matrix that resizes a patch, the kernel pinv(B).T k gives B x the embedding k gave x, exactly where B
    loses nothing, and on average over patches where it does.
    """
    if tuple(kernel.shape[2:]) == tuple(size):
        return kernel
    matrix = resize_matrix((kernel.shape[2], kernel.shape[3]), size)
    resized: Tensor = kernel.flatten(2).double() @ torch.linalg.pinv(matrix)
    return resized.reshape(*kernel.shape[:2], *size).to(kernel.dtype)


def resize_matrix(old: Pair, new: Pair) -> Tensor:
    """The linear map that resizes a patch bilinearly: pixels of the new patch x pixels of the old."""
    basis = torch.eye(old[0] * old[1], dtype=torch.float64).reshape(-1, 1, *old)
    resized: Tensor = F.interpolate(basis, size=new, mode="bilinear", align_corners=False)
    return resized.flatten(1).T


def channels(model: Adapted, count: int) -> Adapted:
    """For pictures of more or fewer channels."""
    old = model.config.num_channels
    first = "stem.resnet.root.weight" if model.config.resnet else KERNEL
    colours = {name: _spread(getattr(model.preprocess, name), count) for name in ("mean", "std")}
    return Adapted(
        replace(model.config, num_channels=count),
        model.state | {first: resize_channels(model.state[first], count)},
        replace(model.preprocess, **colours),
        model.labels,
        [*model.notes, f"{old} channels made {count}, so that a picture of equal channels gives the same embedding"],
    )


def resize_channels(kernel: Tensor, count: int) -> Tensor:
    """A first kernel for `count` channels whose sum over channels stays the same.

    More: each keeps its kernel, new ones get the mean, and all shrink so that the sum stays. Fewer: the kernels of
    those that are gone are shared out among the rest (one channel: the sum of all).
    """
    old = kernel.shape[1]
    if count <= old:
        return kernel[:, :count] + kernel[:, count:].sum(dim=1, keepdim=True) / count
    mean = kernel.mean(dim=1, keepdim=True).expand(-1, count - old, -1, -1)
    return torch.cat([kernel, mean], dim=1) * (old / count)


def _spread(values: tuple[float, ...], count: int) -> tuple[float, ...]:
    """One number per channel: those there are, then their mean; for a single channel the mean."""
    mean = sum(values) / len(values)
    return (mean,) if count == 1 else (*values[:count], *[mean] * (count - len(values)))


def classes(model: Adapted, count: int, labels: Sequence[str] | None = None, initializer: str = "zero") -> Adapted:
    """With another classifier, or with none (0 classes): zero as Google fine-tunes, or as `initializer` draws it."""
    config = replace(model.config, num_classes=count)
    width = config.representation_size or config.hidden_size * (2 if config.pooling == "token_and_mean" else 1)
    state = {key: tensor for key, tensor in model.state.items() if not key.startswith(CLASSIFIERS)}
    for name in CLASSIFIERS[: 1 + config.distillation_token] if count else ():
        weight, bias = model.state[KERNEL].new_zeros(count, width), model.state[KERNEL].new_zeros(count)
        if initializer != "zero":
            for leaf, tensor in (("weight", weight), ("bias", bias)):
                start = row(initializer, f"{name}.{leaf}")  # type: ignore[arg-type]
                start.fill(tensor, fans(f"{name}.{leaf}", weight), config, None)
        state |= {f"{name}.weight": weight, f"{name}.bias": bias}
    names = list(labels) if labels else [str(index) for index in range(count)]
    note = f"classifier of {model.config.num_classes} classes replaced by one of {count}, initialised {initializer}"
    if not count:
        note = f"classifier of {model.config.num_classes} classes left out"
    return Adapted(config, state, model.preprocess, names, [*model.notes, note])


def prepared_for(preprocess: Preprocess, new: Pair) -> Preprocess:
    """The same preparation for another size: margins keep their proportion."""
    old = preprocess.size
    if new == old:
        return preprocess
    if new[0] != new[1] or old[0] != old[1]:  # a shorter side says nothing about a rectangle
        return replace(preprocess, size=new, resize=new, center_crop=False)
    scale = new[0] / old[0]
    resize: int | Pair | None = preprocess.resize
    if isinstance(resize, int):
        resize = round(resize * scale)
    elif resize is not None:
        resize = (round(resize[0] * scale), round(resize[1] * scale))
    return replace(preprocess, size=new, resize=resize)


def _by(size: Pair) -> str:
    return f"{size[0]} x {size[1]}"
