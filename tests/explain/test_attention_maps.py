"""Are the maps made of attention what their equations say, for every kind of model?"""

from __future__ import annotations

from typing import Any

import numpy as np
import oracle_numpy
import pytest
import torch
from eager import Eager, eager
from hypothesis import given, settings
from oracle.tiny import any_config, random_images, random_model, tiny_config, tiny_hybrid
from torch import Tensor

from vitrail.config import ViTConfig
from vitrail.errors import UsageError
from vitrail.explain import attention as maps
from vitrail.explain.attention import attention, head_maps, mass, rollout
from vitrail.explain.record import Layer, carried, record
from vitrail.explain.relevance import attention_grad_cam, gradient_rollout, relevance
from vitrail.model.vit import VisionTransformer
from vitrail.prune.surgery import prune_heads

few = settings(max_examples=10, deadline=None, derandomize=True)

KINDS: dict[str, ViTConfig] = {
    "plain": tiny_config(),
    "registers": tiny_config(num_register_tokens=3),
    "distilled, with registers": tiny_config(distillation_token=True, num_register_tokens=1),
    "wide grid": tiny_config(image_size=(8, 24)),
    "hybrid": tiny_hybrid(),
    "mean pooling, no class token": tiny_config(pooling="mean", class_token=False),
    "attention pooling": tiny_config(pooling="map"),
    "class token and mean": tiny_config(pooling="token_and_mean"),
    "no classifier": tiny_config(num_classes=0),
    "one logit": tiny_config(num_classes=1),
    "pruned": tiny_config(kept_heads=((1, 3), (0,))),
    "first layer empty": tiny_config(kept_heads=((), (1, 2))),
    "last layer empty": tiny_config(kept_heads=((1, 2), ())),
    "rotary": tiny_config(position="rotary"),
    "LayerScale and qk-norm": tiny_config(layer_scale=0.5, qk_norm=True),
}


def double_model(config: ViTConfig) -> tuple[VisionTransformer, Tensor]:
    """In float64, so that an equation off by one term cannot hide in rounding. The last, even image is left out."""
    return random_model(config).double(), random_images(config, batch=3)[:2].double()


def expected(config: ViTConfig, each: list[Eager], row: Any) -> np.ndarray:
    return np.stack([oracle_numpy.patches(row(one), config.prefix_tokens, config.grid) for one in each])


@pytest.mark.parametrize("config", KINDS.values(), ids=KINDS)
def test_rollout_relevance_and_gradient_rollout_are_their_equations(config: ViTConfig) -> None:
    model, images = double_model(config)
    each = eager(model, images)
    for ours, theirs in (
        (rollout(model, images), lambda one: oracle_numpy.rollout(one.weights, one.read)),
        (relevance(model, images), lambda one: oracle_numpy.relevance(one.weights, one.gradients, one.read)),
        (
            gradient_rollout(model, images),
            lambda one: oracle_numpy.gradient_rollout(one.weights, one.gradients, one.read),
        ),
    ):
        assert ours.shape == (2, *config.grid)
        assert np.abs(ours.numpy() - expected(config, each, theirs)).max() < 1e-10


@pytest.mark.parametrize("config", KINDS.values(), ids=KINDS)
def test_gradients_of_attention_from_the_fast_pass_equal_those_through_an_eager_softmax(config: ViTConfig) -> None:
    model, images = double_model(config)
    each = eager(model, images)
    layers = record(model, images, gradients=True).layers
    for number, layer in enumerate(layers):
        everything = slice(0, layer.q.shape[2])
        for i, one in enumerate(each):
            assert np.allclose(layer.weights(everything)[i], one.weights[number], atol=1e-12)
            assert np.allclose(layer.weight_gradients(everything)[i], one.gradients[number], atol=1e-12)


def test_any_class_can_be_asked_for_by_number_by_label_or_one_per_image() -> None:
    config = tiny_config()
    model, images = double_model(config)
    model.labels = ["a", "b", "c", "d", "e"]
    by_number = [relevance(model, images, target=number) for number in range(5)]
    for number, ours in enumerate(by_number):
        each = eager(model, images, number)
        theirs = expected(config, each, lambda one: oracle_numpy.relevance(one.weights, one.gradients, one.read))
        assert np.abs(ours.numpy() - theirs).max() < 1e-10
    assert not torch.allclose(by_number[0], by_number[1])
    assert torch.equal(relevance(model, images, target="c"), by_number[2])
    mixed = relevance(model, images, target=[4, "a"])
    assert torch.allclose(mixed, torch.stack([by_number[4][0], by_number[0][1]]))


@pytest.mark.parametrize("config", KINDS.values(), ids=KINDS)
def test_raw_attention_is_a_row_of_the_layer_without_prefix(config: ViTConfig) -> None:
    model, images = double_model(config)
    each = eager(model, images)
    found = head_maps(model, images, [n for n in range(2) if config.heads_in(n)])
    for number, ours in found.items():
        for i, one in enumerate(each):
            rows = np.stack([mean_row(config, head) for head in one.weights[number]])
            assert np.allclose(ours[i], oracle_numpy.patches(rows, config.prefix_tokens, config.grid), atol=1e-12)
    last = max(found)
    assert torch.allclose(attention(model, images), found[last].mean(1))
    assert torch.allclose(attention(model, images, fuse="max", layer=min(found)), found[min(found)].amax(1))
    some_head = config.heads_in(last)[-1]
    assert torch.allclose(attention(model, images, head=some_head, layer=last), found[last][:, -1])


def mean_row(config: ViTConfig, head: np.ndarray) -> np.ndarray:
    if config.pooling == "token":
        return head[: 1 + config.distillation_token].mean(axis=0)
    return head[config.prefix_tokens :].mean(axis=0)


def test_many_query_rows_are_summed_in_slices_to_the_same_map(monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny_config(pooling="mean", class_token=False, image_size=(24, 40))
    model, images = double_model(config)
    asked_one_by_one = head_maps(model, images)
    monkeypatch.setattr(maps, "MANY_ROWS", 3)
    monkeypatch.setattr("vitrail.explain.record.SLICE_BYTES", 4 * 2 * 4 * 60 * 7)  # 7 rows at a time, of 60
    assert len(list(record(model, images).layers[0].slices())) == 9
    for layer, summed in head_maps(model, images).items():
        assert torch.allclose(summed, asked_one_by_one[layer], atol=1e-12)
    assert torch.allclose(head_maps(model, images, heads=[2])[1], asked_one_by_one[1][:, [2]], atol=1e-12)


@pytest.mark.parametrize("query", [(0, 0), (2, 1)])
def test_a_query_patch_is_found_by_row_and_column_behind_any_prefix(query: tuple[int, int]) -> None:
    config = tiny_config(num_register_tokens=2)
    model, images = double_model(config)
    each = eager(model, images)
    token = 3 + query[0] * 2 + query[1]
    assert np.allclose(
        attention(model, images, query=query, layer=0, head=3),
        expected(config, each, lambda one: one.weights[0][3][token]),
    )
    start = np.eye(9)[token]
    assert np.allclose(
        rollout(model, images, query=query),
        expected(config, each, lambda one: oracle_numpy.rollout(one.weights, start)),
    )


@pytest.mark.parametrize("fuse", ["mean", "max", "min"])
@pytest.mark.parametrize("discard", [0.0, 0.3, 0.9])
def test_rollout_fuses_heads_and_discards_the_lowest(fuse: Any, discard: float) -> None:
    config = tiny_config(num_register_tokens=2)
    model, images = double_model(config)
    theirs = expected(
        config, eager(model, images), lambda one: oracle_numpy.rollout(one.weights, one.read, fuse, discard)
    )
    assert np.allclose(rollout(model, images, fuse=fuse, discard=discard), theirs, atol=1e-12)


@pytest.mark.parametrize("config", KINDS.values(), ids=KINDS)
def test_attention_grad_cam_weighs_the_last_layer_with_heads(config: ViTConfig) -> None:
    model, images = double_model(config)
    ours = attention_grad_cam(model, images)
    for i, one in enumerate(eager(model, images)):
        last = max(number for number in range(2) if config.heads_in(number))
        row = oracle_numpy.attention_grad_cam(one.weights[last], one.gradients[last], one.read, config.prefix_tokens)
        if row[config.prefix_tokens :].sum() > 0:
            assert np.allclose(ours[i], oracle_numpy.patches(row, config.prefix_tokens, config.grid), atol=1e-10)
        else:
            assert not ours[i].any()


@pytest.mark.parametrize("keep", [0.1, 0.6, 0.95, 1.0])
def test_a_mass_mask_holds_the_fewest_patches_with_that_share_of_attention(keep: float) -> None:
    config = tiny_config(distillation_token=True)
    model, images = double_model(config)
    rows = head_maps(model, images, [1])[1].flatten(2)
    for head in range(4):
        ours = mass(model, images, head=head, keep=keep).flatten(1)
        for i in range(2):
            assert np.array_equal(ours[i].numpy() > 0, oracle_numpy.heaviest(rows[i, head].numpy(), keep))
    assert torch.allclose(
        mass(model, images, keep=keep),
        torch.stack([mass(model, images, head=head, keep=keep) for head in range(4)]).mean(0),
    )


# Invariants --------------------------------------------------------------------------------------------------------


@given(config=any_config(num_classes=5))
@few
def test_maps_fit_the_grid_are_not_negative_and_sum_to_one(config: ViTConfig) -> None:
    model, images = random_model(config), random_images(config)
    for ours in (rollout(model, images), gradient_rollout(model, images) if any_heads(config) else None):
        if ours is not None and config.pooling != "token":  # every patch is read
            assert torch.allclose(ours.sum((1, 2)), torch.ones(2), atol=1e-5)
        if ours is not None:
            assert ours.shape == (2, *config.grid)
            assert (ours >= 0).all()


@given(config=any_config(num_classes=5))
@few
def test_whole_rollout_rows_sum_to_one(config: ViTConfig) -> None:
    recording = record(random_model(config), random_images(config))
    rows = recording.read[:, None]
    for layer in reversed(recording.layers):
        if layer.heads:
            rows = carried(rows, layer, lambda layer, some: maps.rollout_step(layer, some, "mean", 0.0))
        assert torch.allclose(rows.sum(-1), torch.ones(()), atol=1e-5)


def any_heads(config: ViTConfig) -> bool:
    return any(config.heads_in(layer) for layer in range(config.num_hidden_layers))


def test_a_picture_of_another_size_gives_a_map_of_its_own_grid() -> None:
    model = random_model(tiny_config(num_register_tokens=1))
    images = random_images(model.config, size=(20, 28))
    for method in (attention, mass, rollout, relevance, gradient_rollout, attention_grad_cam):
        assert method(model, images).shape == (2, 5, 7)


def test_images_of_a_batch_do_not_mix() -> None:
    model = random_model(tiny_config())
    images = random_images(model.config, batch=4)
    for method in (attention, mass, rollout, relevance, gradient_rollout, attention_grad_cam):
        alone = torch.cat([method(model, image[None]) for image in images])
        assert torch.allclose(method(model, images), alone, atol=1e-6)


def test_explaining_a_pruned_model_equals_explaining_it_with_those_heads_masked() -> None:
    model, images = double_model(tiny_config())
    pruned = prune_heads(model, {0: [1], 1: [0, 3]})
    assert torch.allclose(head_maps(pruned, images)[0], head_maps(model, images)[0][:, [0, 2, 3]])
    with pytest.raises(UsageError, match="Layer 1 has no head 3"):
        attention(pruned, images, head=3)
    each = eager(pruned, images)
    theirs = expected(pruned.config, each, lambda one: oracle_numpy.relevance(one.weights, one.gradients, one.read))
    assert np.allclose(relevance(pruned, images), theirs)


def test_explaining_leaves_the_model_as_it_was() -> None:
    model = random_model(tiny_config(hidden_dropout_prob=0.5)).train()
    images = random_images(model.config)
    first = relevance(model, images)
    assert model.training
    assert torch.equal(first, relevance(model, images))  # no dropout inside
    assert all(parameter.grad is None for parameter in model.parameters())
    with torch.inference_mode():
        assert torch.equal(first, relevance(model, images))


def test_a_frozen_model_explains_as_well() -> None:
    model = random_model(tiny_config())
    images = random_images(model.config)
    free = relevance(model, images)
    assert torch.equal(relevance(model.requires_grad_(False), images), free)


def test_slices_of_any_size_give_the_same_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    model, images = double_model(tiny_config(num_register_tokens=2))
    whole = [method(model, images) for method in (rollout, relevance, gradient_rollout, attention_grad_cam)]
    monkeypatch.setattr("vitrail.explain.record.SLICE_BYTES", 1)  # one query row at a time
    sliced = [method(model, images) for method in (rollout, relevance, gradient_rollout, attention_grad_cam)]
    for one, other in zip(whole, sliced, strict=True):
        assert torch.allclose(one, other, atol=1e-12)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda model, images: attention(model, images, layer=2), "Asked for layer 2"),
        (lambda model, images: attention(model, images, head=7), "no head 7"),
        (lambda model, images: attention(model, images, query=(3, 0)), "row 3, column 0"),
        (lambda model, images: mass(model, images, keep=0.0), "keep is 0.0"),
        (lambda model, images: rollout(model, images, discard=1.0), "discard is 1.0"),
        (lambda model, images: relevance(model, images, target=5), "classes 0 to 4"),
        (lambda model, images: relevance(model, images, target="cat"), "no class 'cat'"),
        (lambda model, images: relevance(model, images, target=[1, 2, 3]), "3 classes for 2 images"),
    ],
)
def test_what_cannot_be_shown_is_refused_with_a_reason(call: Any, words: str) -> None:
    model = random_model(tiny_config())
    with pytest.raises(UsageError, match=words):
        call(model, random_images(model.config))


def test_a_class_of_a_model_without_classes_is_refused() -> None:
    model = random_model(tiny_config(num_classes=0))
    with pytest.raises(UsageError, match="no classifier"):
        relevance(model, random_images(model.config), target=0)


# Where public reimplementations go wrong -----------------------------------------------------------------------------


def one_image() -> Eager:
    model, images = double_model(tiny_config())
    return eager(model, images[:1])[0]


def test_row_sums_without_keepdim_divide_columns_as_in_vit_explain() -> None:
    """vit_rollout.py: `a = a / a.sum(dim=-1)` with a of 1 x tokens x tokens. Harmless only while all sums are equal."""
    one = one_image()
    wrong = right = torch.eye(7, dtype=torch.float64)[None]
    for layer in one.weights:
        fused = torch.from_numpy(layer).amax(0)[None] + torch.eye(7, dtype=torch.float64)
        wrong = torch.matmul(fused / fused.sum(dim=-1), wrong)
        right = torch.matmul(maps.rows_to_one(fused.clone()), right)
    assert torch.allclose(right.sum(-1), torch.ones((), dtype=torch.float64))
    assert (wrong.sum(-1) - 1).abs().max() > 0.05
    assert np.allclose(right[0, 0], oracle_numpy.rollout(one.weights, one.read, "max"))
    ours = rollout(double_model(tiny_config())[0], double_model(tiny_config())[1][:1], fuse="max")
    theirs = oracle_numpy.patches(wrong[0, 0].numpy(), 1, (3, 2))
    assert np.abs(ours[0].numpy() - theirs).max() > 0.01
    assert np.argsort(ours[0].numpy(), axis=None).tolist() != np.argsort(theirs, axis=None).tolist()


def test_a_sum_over_both_axes_underflows_as_in_vit_keras() -> None:
    """vit_keras.visualize divides by the sum over queries and keys: each layer loses a factor of the token count."""
    tokens, layers = 577, 24  # L/16 at 384
    even = np.full((tokens, tokens), 1 / tokens, dtype=np.float32)
    wrong = right = np.eye(tokens, dtype=np.float32)
    for _ in range(layers):
        step = even + np.eye(tokens, dtype=np.float32)
        wrong = (step / step.sum(axis=(0, 1), keepdims=True)) @ wrong
        right = (step / step.sum(axis=1, keepdims=True)) @ right
    assert not wrong.any()  # float32 holds nothing below 1e-45
    assert np.allclose(right.sum(axis=1), 1, atol=1e-4)


def test_carried_rows_equal_the_whole_product() -> None:
    q, k = torch.randn(2, 3, 11, 4), torch.randn(2, 3, 11, 4)
    layer, rows = Layer((0, 1, 2), q, k), torch.rand(2, 5, 11)
    whole = layer.weights(slice(0, 11)).mean(1)
    assert torch.allclose(
        carried(rows, layer, lambda layer, some: layer.weights(some).mean(1)), rows @ whole, atol=1e-6
    )
