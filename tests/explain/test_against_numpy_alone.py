"""Do the methods that are no product of attention matrices agree with a model that is NumPy from pixels to logits?"""

from __future__ import annotations

import numpy as np
import pytest
from oracle.tiny import random_images, random_model, tiny_config, tiny_hybrid
from oracle.translate import google_weights, how, rows_cols_channels
from oracle.vit_numpy import Weights, forward, head, layer_norm, softmax, under
from torch import Tensor

from vitrail.config import ViTConfig
from vitrail.explain.faithfulness import faithfulness
from vitrail.explain.features import lens, norms, pca
from vitrail.explain.gradient import integrated_gradients
from vitrail.explain.perturb import occlusion
from vitrail.model.vit import VisionTransformer

KINDS: dict[str, ViTConfig] = {
    "plain": tiny_config(),
    "registers": tiny_config(num_register_tokens=2),
    "distilled": tiny_config(distillation_token=True),
    "wide grid": tiny_config(image_size=(8, 24)),
    "mean pooling": tiny_config(pooling="mean", class_token=False),
    "pruned": tiny_config(kept_heads=((1, 3), (0,))),
}
HYBRID = {"hybrid": tiny_hybrid()}


def double_model(config: ViTConfig) -> tuple[VisionTransformer, Tensor]:
    return random_model(config).double(), random_images(config, batch=3)[:2].double()


def stride(config: ViTConfig) -> np.ndarray:
    return np.ones((*config.stride, 1), bool)


@pytest.mark.parametrize("config", KINDS.values(), ids=KINDS)
def test_integrated_gradients_are_differences_of_logits_of_pictures_nudged_pixel_by_pixel(config: ViTConfig) -> None:
    model, images = double_model(config)
    weights, convention, small = google_weights(model), how(config), 1e-4
    ours = integrated_gradients(model, images[:1], target=3, steps=3, baseline=0.2).numpy()[0]
    (picture,) = rows_cols_channels(images[:1])
    nudges = small * np.eye(picture.size).reshape(-1, *picture.shape)
    slopes = np.zeros(picture.size)
    for way in (1 / 6, 3 / 6, 5 / 6):
        point = 0.2 + way * (picture - 0.2)
        up, down = (forward(weights, point + sign * nudges, convention)["logits"][:, 3] for sign in (1, -1))
        slopes += (up - down) / (2 * small) / 3
    theirs = (slopes.reshape(picture.shape) * (picture - 0.2)).sum(-1)
    assert np.abs(ours - theirs).max() < 1e-6 * np.abs(theirs).max()


@pytest.mark.parametrize("config", (KINDS | HYBRID).values(), ids=KINDS | HYBRID)
def test_occlusion_is_the_probability_lost_under_each_patch(config: ViTConfig) -> None:
    model, images = double_model(config)
    weights, convention = google_weights(model), how(config)
    ours = occlusion(model, images, target=1).numpy()
    for picture, found in zip(rows_cols_channels(images), ours, strict=True):
        covered = [picture]
        for cell in np.eye(found.size).reshape(-1, *config.grid):
            window = np.kron(cell[..., None], stride(config))[: picture.shape[0], : picture.shape[1]]
            covered.append(np.where(window > 0, 0.0, picture))
        chances = softmax(forward(weights, np.stack(covered), convention)["logits"])[:, 1]
        assert np.allclose(found.flatten(), chances[0] - chances[1:], atol=1e-10)


@pytest.mark.parametrize("config", (KINDS | HYBRID).values(), ids=KINDS | HYBRID)
def test_the_lens_is_the_final_norm_and_head_on_the_tokens_after_each_block(config: ViTConfig) -> None:
    model, images = double_model(config)
    weights, convention = google_weights(model), how(config)
    seen = forward(weights, rows_cols_channels(images), convention)
    found = lens(model, images, top=5)
    assert found.classes is not None
    for block in range(config.num_hidden_layers):
        tokens = layer_norm(seen[f"block_{block}"], under(weights, "Transformer/encoder_norm"), convention)
        chances = softmax(head(weights, tokens, config.prefix_tokens, convention, {}))
        order = np.argsort(-chances, axis=1)
        assert np.array_equal(found.classes[block].numpy(), order)
        assert np.allclose(found.values[block].numpy(), np.take_along_axis(chances, order, 1), atol=1e-10)


@pytest.mark.parametrize("config", (KINDS | HYBRID).values(), ids=KINDS | HYBRID)
def test_norms_and_colours_are_those_of_the_tokens(config: ViTConfig) -> None:
    model, images = double_model(config)
    seen = forward(google_weights(model), rows_cols_channels(images), how(config))
    patches = seen["block_0"][:, config.prefix_tokens :].reshape(2, *config.grid, -1)
    assert np.allclose(norms(model, images, layer=0).numpy(), np.sqrt((patches**2).sum(-1)), atol=1e-10)
    for one, colours in zip(patches, pca(model, images, layer=0).colours.numpy(), strict=True):
        assert np.allclose(colours, principal_colours(one), atol=1e-5)


def principal_colours(patches: np.ndarray) -> np.ndarray:
    flat = patches.reshape(-1, patches.shape[-1])
    flat = flat - flat.mean(axis=0)
    _, _, directions = np.linalg.svd(flat, full_matrices=False)
    scores = []
    for direction in directions[:3]:
        signed = direction * np.sign(direction[np.abs(direction).argmax()])
        score = flat @ signed
        low, high = np.percentile(score, [1, 99])
        scores.append(np.clip((score - low) / (high - low), 0, 1))
    return np.stack(scores, axis=-1).reshape(*patches.shape[:2], 3)


@pytest.mark.parametrize("config", KINDS.values(), ids=KINDS)
def test_deletion_is_the_area_under_the_probability_while_patches_go(config: ViTConfig) -> None:
    model, images = double_model(config)
    weights, convention = google_weights(model), how(config)
    maps = occlusion(model, images, target=1)
    scores = faithfulness(model, images, maps, target=1, steps=config.grid[0] * config.grid[1])
    for picture, importance, found in zip(rows_cols_channels(images), maps.numpy(), scores, strict=True):
        order = np.argsort(-importance.flatten())
        chances = [probability(weights, gone(picture, order[:n], config), convention) for n in range(len(order) + 1)]
        assert found.deletion == pytest.approx(np.trapezoid(chances, dx=1 / len(order)), abs=1e-6)


def gone(picture: np.ndarray, patches: np.ndarray, config: ViTConfig) -> np.ndarray:
    cells = np.zeros(config.grid[0] * config.grid[1])
    cells[patches] = 1
    return np.where(np.kron(cells.reshape(*config.grid, 1), stride(config)) > 0, 0.0, picture)


def probability(weights: Weights, picture: np.ndarray, convention: object) -> float:
    return float(softmax(forward(weights, picture[None], convention)["logits"])[0, 1])  # type: ignore[arg-type]
