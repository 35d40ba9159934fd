"""Pruned heads are exactly masked heads, and cost nothing."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import vitrail
from vitrail.errors import ConfigError
from vitrail.model.probe import Probe
from vitrail.model.vit import VisionTransformer

LAYERS, HEADS = 3, 4
some_heads = st.dictionaries(st.integers(0, LAYERS - 1), st.sets(st.integers(0, HEADS - 1)), max_size=LAYERS)


def model(**changes: object) -> VisionTransformer:
    sizes = {"hidden_size": 32, "num_attention_heads": HEADS, "num_hidden_layers": LAYERS, "intermediate_size": 40}
    return vitrail.create("mu/16", seed=1, image_size=32, num_classes=5, initializer="timm", **(sizes | changes))


def masked(whole: VisionTransformer, images: torch.Tensor, gone: dict[int, set[int]]) -> torch.Tensor:
    gates = {layer: [float(head not in heads) for head in range(HEADS)] for layer, heads in gone.items()}
    return whole(images, Probe(scale_heads=gates))


@settings(max_examples=25, deadline=None)
@given(gone=some_heads)
def test_pruning_any_heads_equals_masking_them(gone: dict[int, set[int]]) -> None:
    whole, images = model(), torch.randn(2, 3, 32, 32)
    pruned = vitrail.prune_heads(whole, gone)
    assert torch.allclose(pruned(images), masked(whole, images, gone), atol=1e-5)
    removed = sum(len(heads) for heads in gone.values())
    head_parameters = 8 * 32 * 4 + 3 * 8  # rows of q, k, v and columns of the projection, and their biases
    assert count(whole) - count(pruned) == removed * head_parameters


@pytest.mark.parametrize("changes", [{"key_bias": False}, {"qkv_bias": False}, {"qk_norm": True}, {"head_dim": 16}])
def test_every_form_of_attention_can_be_pruned(changes: dict[str, object]) -> None:
    whole, images = model(**changes), torch.randn(2, 3, 32, 32)
    gone = {0: {1, 3}, 1: {0, 1, 2, 3}}
    assert torch.allclose(vitrail.prune_heads(whole, gone)(images), masked(whole, images, gone), atol=1e-5)


def test_pruning_in_two_steps_is_pruning_at_once() -> None:
    whole, images = model(), torch.randn(1, 3, 32, 32)
    twice = vitrail.prune_heads(vitrail.prune_heads(whole, {0: [1], 2: [0]}), {0: [3], 1: [2]})
    once = vitrail.prune_heads(whole, {0: [1, 3], 1: [2], 2: [0]})
    assert twice.config == once.config
    assert torch.equal(twice(images), once(images))


def test_the_model_given_is_left_as_it_was() -> None:
    whole, images = model(), torch.randn(1, 3, 32, 32)
    before = whole(images)
    pruned = vitrail.prune_heads(whole, {0: [0]})
    with torch.no_grad():
        for parameter in pruned.parameters():
            parameter.zero_()
    assert torch.equal(whole(images), before)
    assert whole.config.kept_heads is None


def test_heads_keep_the_numbers_they_were_born_with() -> None:
    whole, images = model(), torch.randn(1, 3, 32, 32)
    pruned = vitrail.prune_heads(whole, {0: [0, 2]})
    watch = {"queries": [0], "heads": {0: [3]}}
    ours, theirs = Probe("blocks.0.attn.weights", **watch), Probe("blocks.0.attn.weights", **watch)
    pruned(images, ours), whole(images, theirs)
    assert torch.equal(ours["blocks.0.attn.weights"], theirs["blocks.0.attn.weights"])
    with pytest.raises(ConfigError, match="has no head 2"):
        pruned(images, Probe("blocks.0.attn.weights", heads={0: [2]}))


def test_preprocessing_and_labels_stay_with_the_model() -> None:
    whole = model()
    whole.labels = ["a", "b", "c", "d", "e"]
    pruned = vitrail.prune_heads(whole, {0: [0]})
    assert (pruned.labels, pruned.preprocess) == (whole.labels, whole.preprocess)


def test_a_pruned_model_can_be_trained() -> None:
    pruned = vitrail.prune_heads(model(), {0: [0, 1, 2, 3], 1: [2]}).train()
    pruned(torch.randn(2, 3, 32, 32)).sum().backward()
    assert all(p.grad is not None for name, p in pruned.named_parameters() if p.numel() and "pos" not in name)


@pytest.mark.parametrize("asked", [{3: [0]}, {0: [4]}, {-1: [0]}])
def test_heads_that_never_were_are_refused(asked: dict[int, list[int]]) -> None:
    with pytest.raises(ConfigError, match="Layers 0 to 2, heads 0 to 3"):
        vitrail.prune_heads(model(), asked)


def test_a_pruned_models_state_loads_into_a_model_of_its_config() -> None:
    from vitrail.model.vit import create

    pruned, images = vitrail.prune_heads(model(), {0: [0, 1, 2, 3], 2: [1]}), torch.randn(1, 3, 32, 32)
    again = create(pruned.config)
    again.load_state_dict(pruned.state_dict())
    assert torch.equal(again(images), pruned(images))


def count(of: VisionTransformer) -> int:
    return sum(parameter.numel() for parameter in of.parameters())
