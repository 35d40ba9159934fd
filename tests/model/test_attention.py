"""Do the fast paths, the probe's gates and pruning give what plain, whole attention gives?"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import translate
from oracle.tiny import any_config, random_images, random_model, tiny_config
from oracle.vit_numpy import forward
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from vitrail.config import ViTConfig, replace
from vitrail.errors import ConfigError
from vitrail.model.encoder import attend
from vitrail.model.probe import Probe
from vitrail.model.vit import VisionTransformer

few = settings(max_examples=15, deadline=None, derandomize=True)


def logits(model: VisionTransformer, images: Tensor, probe: Probe | None = None) -> Tensor:
    with torch.no_grad():
        return model(images, probe) if probe else model(images)


# Kernels -----------------------------------------------------------------------------------------------------------


def plain_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = q.double(), k.double(), v.double()
    return torch.softmax(torch.einsum("bhqd,bhtd->bhqt", q, k) / q.shape[-1] ** 0.5, dim=-1) @ v


KERNELS = {
    "short": (3, 4, 10, 10),
    "one query": (3, 4, 1, 50),
    "slices of a batch, and a rest": (25, 12, 197, 197),
    "too many scores for a cache": (1, 16, 1030, 1030),
    "no images": (0, 2, 5, 5),
    "no heads": (2, 0, 5, 5),
}
TOLERANCE = {torch.float64: 1e-13, torch.float32: 2e-6, torch.bfloat16: 3e-2, torch.float16: 4e-3}


@pytest.mark.parametrize(
    ("case", "dtype"),
    [(case, dtype) for case in KERNELS for dtype in TOLERANCE if dtype == torch.bfloat16 or not case.startswith("too")],
)
def test_every_kernel_computes_softmax_attention(case: str, dtype: torch.dtype) -> None:
    batch, heads, queries, tokens = KERNELS[case]
    draw = torch.Generator().manual_seed(0)
    shapes = ((batch, heads, queries, 4), (batch, heads, tokens, 4), (batch, heads, tokens, 4))
    q, k, v = (torch.randn(shape, generator=draw).to(dtype) for shape in shapes)
    result = attend(q, k, v)
    assert result.dtype == dtype
    assert result.shape == q.shape
    assert torch.allclose(result.double(), plain_attention(q, k, v), rtol=0, atol=TOLERANCE[dtype])


def test_gradients_reach_queries_keys_and_values_through_every_kernel() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        q, k, v = (torch.randn(20, 12, 60, 4, dtype=dtype, requires_grad=True) for _ in range(3))
        attend(q, k, v).float().pow(2).sum().backward()
        expected = [x.detach().double().requires_grad_() for x in (q, k, v)]
        plain_attention(*expected).pow(2).sum().backward()
        for ours, theirs in zip((q, k, v), expected, strict=True):
            assert (ours.grad.double() - theirs.grad).abs().max() < 0.02 * theirs.grad.abs().max()


# Watching ----------------------------------------------------------------------------------------------------------


@given(config=any_config(num_classes=5))
@few
def test_watching_everything_changes_nothing(config: ViTConfig) -> None:
    model, images = random_model(config), random_images(config)
    assert torch.allclose(logits(model, images), logits(model, images, Probe("*")), atol=1e-6)


@given(config=any_config(num_classes=5))
@few
def test_watched_weights_times_values_are_what_the_fast_kernel_gathered(config: ViTConfig) -> None:
    probe = Probe("blocks.*")
    model = random_model(config)
    logits(model, random_images(config), probe)
    for layer in range(config.num_hidden_layers):
        attention = f"blocks.{layer}.attn"
        weights, values = probe[f"{attention}.weights"], probe[f"{attention}.v"]
        assert torch.allclose(weights.sum(-1), torch.ones(()), atol=1e-5)
        assert torch.allclose(weights, probe[f"{attention}.scores"].softmax(-1))
        assert torch.allclose(weights @ values, probe[f"{attention}.context"], atol=1e-5)


@given(
    config=any_config(num_classes=5, kept_heads=None),
    queries=st.lists(st.integers(-1, 2), min_size=1, max_size=4),
    heads=st.lists(st.integers(0, 3), max_size=4, unique=True),
)
@few
def test_rows_and_heads_asked_for_are_a_slice_of_all(config: ViTConfig, queries: list[int], heads: list[int]) -> None:
    model, images = random_model(config), random_images(config)
    names = ("blocks.*.attn.weights", "blocks.*.attn.scores")
    whole, part = Probe(*names), Probe(*names, queries=queries, heads=heads)
    result = logits(model, images, whole), logits(model, images, part)
    assert torch.allclose(*result, atol=1e-6)
    assert list(part) == list(whole)
    for name, tensor in whole.items():
        expected = tensor[:, heads][:, :, queries]
        assert part[name].shape == expected.shape
        assert torch.allclose(part[name], expected, atol=1e-6)


def test_heads_may_differ_by_layer_and_keep_their_numbers_when_others_are_gone() -> None:
    config = tiny_config(kept_heads=((0, 2, 3), (1, 3)))
    model, images = random_model(config), random_images(config)
    whole, part = Probe("*.weights"), Probe("*.weights", heads={0: [3], 1: [3, 1]})
    logits(model, images, whole), logits(model, images, part)
    assert torch.equal(part["blocks.0.attn.weights"], whole["blocks.0.attn.weights"][:, [2]])
    assert torch.equal(part["blocks.1.attn.weights"], whole["blocks.1.attn.weights"][:, [1, 0]])
    with pytest.raises(ConfigError, match=r"(?s)Layer 1 has no head 2.*\[1, 3\]"):
        logits(model, images, Probe("*.weights", heads={1: [2]}))


def test_only_what_was_asked_for_is_computed() -> None:
    """Rows are cut before the scores are: nothing as long as tokens x tokens ever exists."""
    config = tiny_config(image_size=64)
    model, images = random_model(config), random_images(config, batch=1)
    seen = LargestTensor()
    with seen:
        logits(model, images, Probe("blocks.*.attn.weights", queries=[0], heads=[1]))
    assert seen.elements < 257 * 257


class LargestTensor(TorchDispatchMode):
    """Notes the size of the largest tensor any operation makes."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else [out]:
            if isinstance(tensor, Tensor):
                self.elements = max(self.elements, tensor.numel())
        return out


def test_a_name_that_was_not_taken_is_answered_with_the_nearest() -> None:
    config = tiny_config()
    probe = Probe("blocks.0.attn.weights", "norm.out")
    logits(random_model(config), random_images(config), probe)
    with pytest.raises(ConfigError, match=r"Did you mean blocks\.0\.attn\.weights"):
        probe["blocks.0.attn.weight"]


def test_what_is_kept_can_be_boiled_down_on_the_spot() -> None:
    config = tiny_config()
    probe = Probe("blocks.*.out", keep=lambda name, tensor: (name, tensor.abs().mean().item()))
    logits(random_model(config), random_images(config), probe)
    assert list(probe) == ["blocks.0.out", "blocks.1.out"]
    assert all(kept[0] == name and kept[1] > 0 for name, kept in probe.items())


# The last block ----------------------------------------------------------------------------------------------------


@given(config=any_config(num_classes=5))
@few
def test_the_trimmed_last_block_gives_the_same_logits(config: ViTConfig) -> None:
    model, images = random_model(config), random_images(config)
    with torch.no_grad():
        whole = model.head(model.features(images))
    assert torch.allclose(logits(model, images), whole, atol=1e-6)


def test_the_last_block_is_trimmed_for_token_pooling_and_whole_for_who_asks() -> None:
    config = tiny_config()
    model, images = random_model(config), random_images(config)
    trimmed, whole = Probe("head.pooled", "blocks.1.attn.k"), Probe("norm.out")
    flops = []
    for probe in (trimmed, whole):
        with FlopCounterMode(display=False) as counter:
            logits(model, images, probe)
        flops.append(counter.get_total_flops())
    assert flops[0] < 0.8 * flops[1]
    assert whole["norm.out"].shape[1] == trimmed["blocks.1.attn.k"].shape[2] == 7


# Gates and pruning -------------------------------------------------------------------------------------------------


@given(config=any_config(num_classes=5, kept_heads=None), data=st.data())
@few
def test_gating_heads_is_the_eager_head_mask(config: ViTConfig, data: st.DataObject) -> None:
    """The oracle multiplies the attention weights by the mask, as Hugging Face's eager attention does."""
    factor = st.sampled_from([0.0, 1.0, 0.25, -2.0])
    mask = np.array([[data.draw(factor) for _ in range(4)] for _ in range(config.num_hidden_layers)])
    model, images = random_model(config), random_images(config)
    gated = logits(model, images, Probe(scale_heads=dict(enumerate(mask.tolist()))))
    how = dataclasses.replace(translate.how(config), head_mask=mask)
    eager = forward(translate.google_weights(model), translate.rows_cols_channels(images), how)["logits"]
    assert np.abs(gated.numpy() - eager).max() < 2e-5
    exact = logits(model.double(), images.double(), Probe(scale_heads=dict(enumerate(mask.tolist()))))
    assert np.abs(exact.numpy() - eager).max() < 1e-10


def test_a_gated_layer_from_watched_weights_and_values() -> None:
    config = tiny_config(num_hidden_layers=3)
    model, images = random_model(config), random_images(config)
    gates = torch.tensor([0.0, 1.0, 0.0, 0.5])
    probe = Probe("blocks.1.*", scale_heads={1: gates})
    logits(model, images, probe)
    masked = probe["blocks.1.attn.weights"] * gates[:, None, None]
    merged = (masked @ probe["blocks.1.attn.v"]).transpose(1, 2).flatten(2)
    assert torch.allclose(merged, probe["blocks.1.attn.merged"], atol=1e-6)
    assert torch.allclose(model.encoder.blocks[1].attn.proj(merged), probe["blocks.1.attn.out"], atol=1e-6)


def test_a_gate_of_one_is_exactly_no_gate_and_a_gate_can_be_learned() -> None:
    config = tiny_config()
    model, images = random_model(config), random_images(config)
    assert torch.equal(logits(model, images), logits(model, images, Probe(scale_heads={0: [1.0] * 4, 1: [1.0] * 4})))
    gates = torch.ones(4, requires_grad=True)
    model(images, Probe(scale_heads={1: gates}))[0, 0].backward()
    step, difference = 1e-3, []
    for sign in (1, -1):
        moved = [1.0, 1.0, 1.0 + sign * step, 1.0]
        difference.append(logits(model, images, Probe(scale_heads={1: moved}))[0, 0].item() * sign)
    assert gates.grad[2].item() == pytest.approx(sum(difference) / (2 * step), rel=0.02, abs=1e-3)


def test_too_few_gates_are_refused_with_the_number_needed() -> None:
    config = tiny_config()
    with pytest.raises(ConfigError, match="scale_heads"):
        logits(random_model(config), random_images(config), Probe(scale_heads={0: [0.0, 1.0]}))


def pruned(model: VisionTransformer, kept: tuple[tuple[int, ...], ...]) -> VisionTransformer:
    """The model without the other heads, cut out here by hand: rows of q, k, v and columns of the projection."""
    config = replace(model.config, kept_heads=kept)
    smaller, dim = VisionTransformer(config).eval().to(next(model.parameters()).dtype), config.head_dim
    state = dict(model.state_dict())
    for layer, heads in enumerate(kept):
        rows = torch.tensor([head * dim + i for head in heads for i in range(dim)], dtype=torch.long)
        width = 4 * dim
        attention = f"encoder.blocks.{layer}.attn"
        for name, parts in (("qkv.weight", 3), ("qkv.bias", 3), ("query_value_bias", 2)):
            if f"{attention}.{name}" in state:
                every = torch.cat([rows + part * width for part in range(parts)])
                state[f"{attention}.{name}"] = state[f"{attention}.{name}"][every]
        state[f"{attention}.proj.weight"] = state[f"{attention}.proj.weight"][:, rows]
    smaller.load_state_dict(state)
    return smaller


@given(config=any_config(num_classes=5, kept_heads=None), data=st.data())
@few
def test_pruning_heads_is_masking_them(config: ViTConfig, data: st.DataObject) -> None:
    subsets = st.sets(st.integers(0, 3)).map(sorted).map(tuple)
    kept = tuple(data.draw(subsets) for _ in range(config.num_hidden_layers))
    model, images = random_model(config), random_images(config)
    mask = {layer: [float(head in heads) for head in range(4)] for layer, heads in enumerate(kept)}
    expected = logits(model, images, Probe(scale_heads=mask))
    smaller = pruned(model, kept)
    assert torch.allclose(logits(smaller, images), expected, atol=1e-5)
    gone = sum(4 - len(heads) for heads in kept)
    biases = 3 if config.qkv_bias and config.key_bias else 2 if config.qkv_bias else 0
    per_head = (4 * config.hidden_size + biases) * config.head_dim
    assert count(model) - count(smaller) == gone * per_head


def count(model: VisionTransformer) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@given(config=any_config(num_classes=5, kept_heads=None))
@few
def test_keeping_every_head_is_the_same_model(config: ViTConfig) -> None:
    model, images = random_model(config), random_images(config)
    everything = pruned(model, ((0, 1, 2, 3),) * config.num_hidden_layers)
    assert count(everything) == count(model)
    assert torch.equal(logits(everything, images), logits(model, images))


def test_gates_of_a_pruned_model_go_by_the_old_numbers() -> None:
    model, images = random_model(tiny_config()), random_images(tiny_config())
    smaller = pruned(model, ((0, 2, 3), (1, 3)))
    gates = {0: [0.5, 9.0, 0.0, 1.0], 1: [9.0, 1.0, 9.0, 0.25]}
    same = {0: [0.5, 0.0, 0.0, 1.0], 1: [0.0, 1.0, 0.0, 0.25]}
    assert torch.allclose(
        logits(smaller, images, Probe(scale_heads=gates)), logits(model, images, Probe(scale_heads=same)), atol=1e-6
    )


# Batches -----------------------------------------------------------------------------------------------------------


@given(config=any_config(num_classes=5), data=st.data())
@few
def test_an_image_does_not_notice_its_neighbours(config: ViTConfig, data: st.DataObject) -> None:
    model, images = random_model(config), random_images(config, batch=5)
    order = data.draw(st.permutations(range(5)))
    together = logits(model, images)
    assert torch.allclose(logits(model, images[order]), together[order], atol=1e-5)
    alone = torch.cat([logits(model, image[None]) for image in images])
    assert torch.allclose(alone, together, atol=1e-5)


def test_the_same_input_gives_the_same_bits() -> None:
    config = tiny_config()
    model, images = random_model(config), random_images(config)
    assert torch.equal(logits(model, images), logits(model, images))
