"""Files that are sound and are not the model they are taken for: refused, never loaded in part."""

# ruff: noqa: E501  (one case to a line)

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from hostile import Case, tiny
from hostile.tiny import BLOCK, CONFIG
from vitrail.checkpoint import container

Weights = dict[str, Tensor]
QUERY = BLOCK + "attention.attention.query.weight"


def model(change: Callable[[Weights], Weights | None]) -> Callable[[Path], Path]:
    """The tiny model with its weights changed."""

    def build(folder: Path) -> Path:
        weights = tiny.tensors()
        return tiny.folder(folder, CONFIG, change(weights) or weights)

    return build


def without(name: str) -> Callable[[Path], Path]:
    return model(lambda weights: {key: value for key, value in weights.items() if key != name})


def with_(**extra: Tensor) -> Callable[[Path], Path]:
    return model(lambda weights: weights | extra)


def replaced(name: str, make: Callable[[Tensor], Tensor]) -> Callable[[Path], Path]:
    return model(lambda weights: weights | {name: make(weights[name])})


def other(weights: Weights) -> Callable[[Path], Path]:
    """Another model's weights in one file, with no config."""

    def build(folder: Path) -> Path:
        path = folder / "weights.safetensors"
        container.write_safetensors(path, weights)
        return path

    return build


RESNET = {"conv1.weight": torch.ones(64, 3, 7, 7), "bn1.weight": torch.ones(64), "fc.weight": torch.ones(1000, 64)}
BERT = {
    "bert.embeddings.word_embeddings.weight": torch.ones(30, 8),
    "bert.encoder.layer.0.attention.self.query.weight": torch.ones(8, 8),
}
MODELS: dict[str, tuple[Callable[[Path], Path], str]] = {
    "no tensors at all": (other({}), "no tensors|no weights|unknown|known"),
    "a ResNet": (other(RESNET), "conv1.weight|known"),
    "a text model": (other(BERT), "bert|known"),
    "a name nobody knows": (other({"a": torch.ones(2)}), "known|format"),
    "a kernel lost": (without(QUERY), "query"),
    "a bias lost": (without(BLOCK + "layernorm_before.bias"), "layernorm_before.bias"),
    "the position table lost": (without("vit.embeddings.position_embeddings"), "position_embeddings"),
    "half of the classifier lost": (without("classifier.bias"), "classifier.bias"),
    "a tensor too many": (with_(extra=torch.ones(3)), "extra"),
    "a second block's norm too many": (with_(**{BLOCK.replace("0", "1") + "layernorm_before.bias": torch.ones(8)}), "num_hidden_layers|layer.1"),
    "the patch kernel the Google way round": (
        replaced("vit.embeddings.patch_embeddings.projection.weight", lambda t: t.permute(2, 3, 1, 0)), "projection|patch|channels|hidden_size"
    ),
    "a transposed MLP": (replaced(BLOCK + "intermediate.dense.weight", lambda t: t.T), "intermediate|dense|shape"),
    "a kernel of one dimension": (replaced(QUERY, lambda t: t.reshape(-1)), "query"),
    "half of the heads": (replaced(QUERY, lambda t: t[:4]), "query"),
    "a position table of 7 rows": (replaced("vit.embeddings.position_embeddings", lambda t: torch.ones(1, 7, 8)), "position"),
    "a class token of 9": (replaced("vit.embeddings.cls_token", lambda t: torch.ones(1, 1, 9)), "cls_token"),
    "a classifier of another width": (replaced("classifier.weight", lambda t: torch.ones(3, 9)), "classifier"),
    "integers for weights": (replaced(QUERY, lambda t: t.to(torch.int32)), "query"),
    "NaN in one place": (replaced(QUERY, lambda t: t.clone().fill_diagonal_(float("nan"))), "query.*NaN"),
    "an empty kernel": (replaced(QUERY, lambda t: t[:0]), "query"),
}  # fmt: skip

CASES = [Case("wrong", name, "load", build, reason) for name, (build, reason) in MODELS.items()]
