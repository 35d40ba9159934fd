"""Do feature colours, the logit lens and the artifact detector show what is in the tokens?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from eager import eager
from oracle.tiny import random_images, random_model, tiny_config, tiny_hybrid
from sklearn.decomposition import PCA

from vitrail.explain.features import artifacts, far_above_median, lens, norms, patch_features, pca, principal_colours
from vitrail.model.probe import Probe


def test_colours_are_the_principal_components_scikit_learn_finds() -> None:
    features = torch.randn(50, 8, generator=torch.Generator().manual_seed(0)) * torch.arange(1, 9)
    colours, explained = principal_colours(features)
    fitted = PCA(3).fit(features.double().numpy())
    signs = np.sign(fitted.components_[range(3), np.abs(fitted.components_).argmax(1)])
    scores = fitted.transform(features.double().numpy()) * signs
    low, high = np.quantile(scores, [0.01, 0.99], axis=0)
    assert np.allclose(colours, ((scores - low) / (high - low)).clip(0, 1), atol=1e-5)
    assert np.allclose(explained, fitted.explained_variance_ratio_, atol=1e-5)


def test_colours_do_not_flip_with_the_order_of_patches_or_a_little_noise() -> None:
    features = torch.randn(40, 6, generator=torch.Generator().manual_seed(1)) * torch.arange(1, 7)
    order = torch.randperm(40)
    assert torch.allclose(principal_colours(features[order])[0], principal_colours(features)[0][order], atol=1e-4)
    assert (principal_colours(features + 1e-4)[0] - principal_colours(features)[0]).abs().max() < 0.01


def test_images_share_colours_only_when_asked_to() -> None:
    model = random_model(tiny_hybrid())
    images = random_images(model.config)
    together, apart = pca(model, images, scope="batch"), pca(model, images)
    assert together.colours.shape == apart.colours.shape == (2, 5, 4, 3)
    assert not torch.allclose(together.colours, apart.colours)
    assert torch.allclose(apart.colours[:1], pca(model, images[:1]).colours, atol=1e-5)
    assert 0 < apart.explained.sum() <= 1.0001


def test_two_channels_still_make_a_picture() -> None:
    colours, explained = principal_colours(torch.randn(9, 2))
    assert colours.shape == (9, 3)
    assert (colours[:, 2] == 0.5).all()
    assert len(explained) == 2


def test_the_lens_ends_in_the_answer_of_the_model() -> None:
    for config in (tiny_config(), tiny_config(pooling="map"), tiny_config(distillation_token=True)):
        model = random_model(config)
        images = random_images(config)
        seen = lens(model, images, top=3)
        assert seen.classes is not None
        assert seen.values.shape == (2, 2, 3)
        values, classes = model(images).softmax(1).topk(3)
        assert torch.allclose(seen.values[-1], values, atol=1e-5)
        assert torch.equal(seen.classes[-1], classes)
        probe = Probe("blocks.0.out")
        model(images, probe)
        early = model.head(model.encoder.norm(probe["blocks.0.out"])).softmax(1)
        assert torch.allclose(seen.values[0], early.topk(3).values, atol=1e-5)


def test_the_lens_of_a_model_without_classes_shows_features_forming() -> None:
    model = random_model(tiny_config(num_classes=0))
    seen = lens(model, random_images(model.config))
    assert seen.classes is None
    assert seen.values.shape == (2, 2, 1)
    assert torch.allclose(seen.values[-1], torch.ones(()))
    assert (seen.values[0] < 0.999).all()


def test_a_reader_of_digits_makes_up_its_mind_on_the_way(reader: Any, digits: Any) -> None:
    images, labels = digits[0][1400:1500], digits[1][1400:1500]
    seen = lens(reader, images, top=10)
    assert seen.classes is not None
    right = [(classes[:, 0] == labels).float().mean() for classes in seen.classes]
    assert right[-1] > 0.85
    assert right[0] < right[-1] - 0.2


def test_norms_are_lengths_of_patch_tokens() -> None:
    model = random_model(tiny_config(num_register_tokens=2))
    images = random_images(model.config)
    probe = Probe("blocks.0.out")
    model.features(images, probe)
    theirs = np.linalg.norm(probe["blocks.0.out"].detach().numpy()[:, 3:], axis=-1).reshape(2, 3, 2)
    assert np.allclose(norms(model, images, layer=0), theirs, rtol=1e-5)
    assert torch.allclose(patch_features(model, images, 0).norm(dim=-1), norms(model, images, layer=0))


def test_received_attention_is_the_column_sum_over_an_even_spread() -> None:
    config = tiny_config(num_register_tokens=1)
    model, images = random_model(config).double(), random_images(config, batch=3)[:2].double()
    found = artifacts(model, images)
    for i, one in enumerate(eager(model, images)):
        for layer in range(2):
            columns = one.weights[layer].mean(axis=0).sum(axis=0)  # an even spread gives 1 to every token
            assert np.allclose(found.received[layer, i], columns, atol=1e-10)


def test_a_patch_made_to_stand_out_is_found_and_no_other() -> None:
    model = random_model(tiny_config(image_size=(40, 40), num_register_tokens=1))
    images = random_images(model.config)[:1]
    assert not artifacts(model, images).outliers.any()
    with torch.no_grad():
        assert model.tokens.position is not None
        model.tokens.position.table[0, 1 + 37] += 60.0
    found = artifacts(model, images)
    assert found.outliers[0].nonzero().tolist() == [[0, 2 + 37]]
    assert found.norms.shape == (2, 1, 102)


def test_a_sink_is_a_token_that_most_queries_look_at() -> None:
    model = random_model(tiny_config(image_size=(40, 40)))
    images = random_images(model.config)[:1]
    assert not artifacts(model, images).sinks.any()
    with torch.no_grad():  # every query points along +1, and so does the key of one patch
        attention = model.encoder.blocks[0].attn
        attention.q_norm = torch.nn.Identity()
        width = attention.qkv.weight.shape[0] // 3
        attention.qkv.weight[:width] = 0
        attention.qkv.bias[:width] = 30.0
        assert model.tokens.position is not None
        model.tokens.position.table[0, 1 + 11] = attention.qkv.weight[width : 2 * width].sum(0) * 20
    found = artifacts(model, images)
    assert found.received[0, 0].argmax() == 1 + 11
    assert found.sinks[0, 0, 1 + 11]
    assert found.sinks[0, 0].sum() < 5


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_outliers_do_not_depend_on_the_scale_of_the_features(scale: float) -> None:
    lengths = torch.rand(100, generator=torch.Generator().manual_seed(0)) * 0.2 + 1
    lengths[[3, 70]] = 4.0
    assert far_above_median(lengths * scale).nonzero()[:, 0].tolist() == [3, 70]
