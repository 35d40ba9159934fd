"""A whole slow model beside the fast one: attention weights as ordinary tensors, with their own gradients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from oracle import translate, vit_numpy
from oracle_numpy import Arrays
from torch import Tensor

from vitrail.explain.target import Asked, target_of
from vitrail.model.vit import VisionTransformer


@dataclass
class Eager:
    """Of one image: weights and gradients per layer, heads x tokens x tokens, and how the head reads the tokens."""

    weights: Arrays
    gradients: Arrays
    read: np.ndarray


def eager(model: VisionTransformer, images: Tensor, asked: Asked = None) -> list[Eager]:
    """Gradients by autograd through softmax, weights by the NumPy oracle that shares no code with the model."""
    numpy_weights = whole_attention(model, images)
    gradients = whole_gradients(model, images, asked)
    return [
        Eager([layer[i] for layer in numpy_weights], [layer[i] for layer in gradients], read_by_head(model, images)[i])
        for i in range(len(images))
    ]


def whole_attention(model: VisionTransformer, images: Tensor) -> Arrays:
    seen = vit_numpy.forward(
        translate.google_weights(model), translate.rows_cols_channels(images), translate.how(model.config)
    )
    return [seen[f"attn_{layer}"] for layer in range(model.config.num_hidden_layers)]


def whole_gradients(model: VisionTransformer, images: Tensor, asked: Asked) -> Arrays:
    kept: list[Tensor] = []

    def attend_slowly(q: Tensor, k: Tensor, v: Tensor, dropout: float = 0.0) -> Tensor:
        weights = (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(-1)
        kept.append(weights)
        return weights @ v

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vitrail.model.encoder.attend", attend_slowly)
        # every query of the last block too, also those whose gradients are zero
        tokens = model.features(images.clone().requires_grad_())
        outputs = model.head(tokens)
    score = target_of(model, outputs, asked).score(outputs).sum()
    return [gradient.numpy() for gradient in torch.autograd.grad(score, kept)]


def read_by_head(model: VisionTransformer, images: Tensor) -> np.ndarray:
    """The row over tokens that the head's pooling is, per image."""
    config = model.config
    tokens = model.features(images).detach().numpy()
    first, patches = np.zeros(tokens.shape[1]), np.zeros(tokens.shape[1])
    first[: 2 if config.distillation_token else 1] = 0.5 if config.distillation_token else 1
    patches[config.prefix_tokens :] = 1 / len(patches[config.prefix_tokens :])
    rows = {"token": first, "mean": patches, "token_and_mean": (first + patches) / 2}
    if config.pooling != "map":
        return np.repeat(rows[config.pooling][None], len(tokens), axis=0)
    weights = translate.google_weights(model)
    names = vit_numpy.under(weights, "MAPHead_0/MultiHeadDotProductAttention_0")
    query = np.repeat(weights["MAPHead_0/probe"], len(tokens), axis=0)
    return vit_numpy.attention(names, query, tokens)[1].mean(axis=1)[:, 0]
