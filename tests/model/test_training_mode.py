"""Is what should happen in training only, only in training, and right on average? Do all parameters learn?"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from oracle.tiny import TINY_STEM, random_images, random_model, tiny_config

from vitrail.model.mlp import DropPath
from vitrail.model.probe import Probe

NOISE = {
    "hidden_dropout_prob": {"hidden_dropout_prob": 0.2},
    "attention_probs_dropout_prob": {"attention_probs_dropout_prob": 0.2},
    "drop_path_rate": {"drop_path_rate": 0.2},
}


@pytest.mark.parametrize("name", NOISE)
def test_noise_is_for_training_only(name: str) -> None:
    quiet, noisy = random_model(tiny_config()), random_model(tiny_config(**NOISE[name]))
    images = random_images(tiny_config(), batch=40)
    torch.manual_seed(0)
    with torch.no_grad():
        assert torch.equal(noisy(images), quiet(images))
        noisy.train()
        quiet.train()
        assert torch.equal(quiet(images), quiet(images))
        assert not torch.equal(noisy(images), noisy(images))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_attention_dropout_leaves_the_mean_alone_on_both_kernels(dtype: torch.dtype) -> None:
    config = tiny_config(num_hidden_layers=1, attention_probs_dropout_prob=0.3)
    model = random_model(config).to(dtype)
    images = random_images(config, batch=1).to(dtype).repeat(8000, 1, 1, 1)
    draws, still = Probe("blocks.0.attn.merged"), Probe("blocks.0.attn.merged")
    torch.manual_seed(0)
    with torch.no_grad():
        model(images[:1], still)
        model.train()(images, draws)
    assert_same_mean(draws["blocks.0.attn.merged"], still["blocks.0.attn.merged"], dtype)


def test_hidden_dropout_leaves_the_mean_alone_where_it_acts() -> None:
    config = tiny_config(num_hidden_layers=1, hidden_dropout_prob=0.3)
    model, images = random_model(config), random_images(config, batch=1)
    names = ("tokens.out", "tokens.positioned")
    torch.manual_seed(0)
    probe = Probe(*names)
    with torch.no_grad():
        model.train()(images.repeat(8000, 1, 1, 1), probe)
    assert_same_mean(probe["tokens.out"], probe["tokens.positioned"][:1])
    dropped = (probe["tokens.out"] == 0).float().mean().item()
    assert dropped == pytest.approx(0.3, abs=0.01)


@pytest.mark.parametrize("stage", ["attn.out", "mlp.out"])
def test_hidden_dropout_also_acts_at_the_end_of_each_branch(stage: str) -> None:
    config = tiny_config(hidden_dropout_prob=0.3, pooling="mean")
    probe = Probe("blocks.*." + stage)
    with torch.no_grad():
        random_model(config).train()(random_images(config, batch=200), probe)
    for tensor in (tensor for _, tensor in probe.items()):
        assert (tensor == 0).float().mean().item() == pytest.approx(0.3, abs=0.02)


def test_hidden_dropout_also_acts_between_the_two_maps_of_an_mlp() -> None:
    config = tiny_config(hidden_dropout_prob=0.3, num_hidden_layers=1, pooling="mean")
    model, probe = random_model(config).train(), Probe("blocks.0.mlp.*")
    with torch.no_grad():
        model(random_images(config, batch=20), probe)
        undropped = model.encoder.blocks[0].mlp.fc2(probe["blocks.0.mlp.activated"]) / 0.7
    kept = probe["blocks.0.mlp.out"] != 0
    alike = torch.isclose(probe["blocks.0.mlp.out"], undropped, rtol=0.01)[kept]
    assert alike.float().mean() < 0.1


def assert_same_mean(draws: torch.Tensor, mean: torch.Tensor, dtype: torch.dtype = torch.float32) -> None:
    """Within five standard errors everywhere; and there is something to average."""
    draws = draws.double()
    error = draws.std(dim=0) / len(draws) ** 0.5
    assert (draws.std(dim=0) > 0).any()
    rounding = 2e-2 if dtype == torch.bfloat16 else 1e-6
    assert ((draws.mean(dim=0) - mean.double()[0]).abs() <= 5 * error + rounding).all()


def test_drop_path_drops_whole_images_and_keeps_the_mean() -> None:
    drop = DropPath(0.25).train()
    x = torch.ones(20_000, 3, 2)
    torch.manual_seed(0)
    out = drop(x)
    factor = out[:, 0, 0]
    assert torch.equal(out, factor[:, None, None].expand_as(out))
    assert sorted(set(factor.tolist())) == pytest.approx([0.0, 1 / 0.75])
    assert factor.mean().item() == pytest.approx(1.0, abs=0.02)
    assert torch.equal(drop.eval()(x), x)


def test_drop_path_grows_linearly_to_its_rate_and_takes_both_branches() -> None:
    config = tiny_config(num_hidden_layers=3, drop_path_rate=0.4, pooling="mean")
    model = random_model(config)
    assert [block.drop_path.rate for block in model.encoder.blocks] == pytest.approx([0.0, 0.2, 0.4])
    probe = Probe("blocks.*.out", "blocks.*.attn.residual")
    torch.manual_seed(0)
    with torch.no_grad():
        model.train()(random_images(config, batch=4000), probe)
    for layer, rate in ((1, 0.2), (2, 0.4)):
        before, between, after = (
            probe[name] for name in (f"blocks.{layer - 1}.out", f"blocks.{layer}.attn.residual", f"blocks.{layer}.out")
        )
        for x, y in ((before, between), (between, after)):
            skipped = (x == y).flatten(1).all(dim=1).float().mean().item()
            assert skipped == pytest.approx(rate, abs=0.04)


FAMILIES: dict[str, dict[str, Any]] = {
    "plain": {},
    "hybrid": {"resnet": TINY_STEM, "patch_size": 1, "image_size": (37, 30)},
    "DeiT distilled": {"distillation_token": True},
    "DINOv2 with registers and SwiGLU": {
        "num_register_tokens": 2, "layer_scale": 1e-5, "mlp": "swiglu", "hidden_act": "silu",
    },
    "DINOv3": {"position": "rotary", "num_register_tokens": 2, "layer_scale": 1.0, "key_bias": False},
    "CLIP": {"pre_norm": True, "patch_bias": False, "hidden_act": "quick_gelu"},
    "SigLIP": {"class_token": False, "pooling": "map", "hidden_act": "gelu_tanh"},
    "mean of patches, norm after": {"pooling": "mean", "final_norm": "pooled", "class_token": False},
    "class token and mean": {"pooling": "token_and_mean"},
    "sin-cos": {"position": "sincos"},
    "resampled table": {"position_grid": (2, 5)},
    "qk norm, no bias": {"qk_norm": True, "qkv_bias": False},
    "representation": {"representation_size": 7},
    "pruned": {"kept_heads": ((0, 3), (1,))},
    "a layer without heads": {"kept_heads": ((0, 3), ())},
    "no classifier": {"num_classes": 0},
    "relu": {"hidden_act": "relu"},
}  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_every_parameter_receives_a_gradient(family: str) -> None:
    config = tiny_config(**FAMILIES[family])
    model = random_model(config).train()
    model(random_images(config, batch=3)).square().sum().backward()
    without = [name for name, parameter in model.named_parameters() if parameter.numel() and parameter.grad is None]
    silent = [name for name, p in model.named_parameters() if p.numel() and p.grad is not None and not p.grad.any()]
    headless = [f"encoder.blocks.{layer}.norm1." for layer in range(2) if not config.heads_in(layer)]
    assert (without, [name for name in silent if not name.startswith(tuple(headless))]) == ([], [])
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


def test_the_gradient_is_the_slope() -> None:
    """Float64 central differences along a random direction of all weights, everything switched on."""
    config = tiny_config(
        num_register_tokens=1, position="rotary", qk_norm=True, mlp="swiglu", hidden_act="silu", layer_scale=0.1,
        resnet=TINY_STEM, patch_size=1, image_size=(37, 30), pooling="map", representation_size=7,
    )  # fmt: skip
    model, images = random_model(config).double(), random_images(config, batch=3)[:2].double()  # no even picture
    parameters = list(model.parameters())
    draw = torch.Generator().manual_seed(0)
    direction = [torch.randn(p.shape, generator=draw, dtype=p.dtype) * 1e-2 for p in parameters]
    model(images).sum().backward()
    slope = sum((p.grad * d).sum() for p, d in zip(parameters, direction, strict=True)).item()
    values = []
    with torch.no_grad():
        for step in (1e-6, -2e-6):
            for p, d in zip(parameters, direction, strict=True):
                p += step * d
            values.append(model(images).sum().item())
    assert (values[0] - values[1]) / 2e-6 == pytest.approx(slope, rel=1e-5)
