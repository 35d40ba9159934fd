"""Does every weight learn at the rate, with the decay, the clipping and the average that the config asks for?"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from oracle.peers import peer
from torch import nn

import vitrail
from vitrail.train.config import TrainConfig
from vitrail.train.optim import (
    gradient_norm,
    layer_of,
    learning_rate,
    make_optimizer,
    parameter_groups,
    scale_gradients,
    set_learning_rate,
    update_average,
)


def tiny(**fields: Any) -> vitrail.VisionTransformer:
    shape = {"image_size": 16, "patch_size": 8, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 48}
    return vitrail.create("Ti/16", num_classes=4, num_hidden_layers=3, seed=0, **(shape | fields))


def test_the_rate_warms_up_and_then_falls_as_torchs_schedulers_do() -> None:
    config = TrainConfig(lr=0.4, warmup=10, min_lr=0.1)
    rates = [learning_rate(config, step, 110) for step in range(110)]
    assert rates[:10] == pytest.approx([0.4 * (step + 1) / 11 for step in range(10)])
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.4)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=100, eta_min=0.04)
    for rate in rates[10:]:
        assert rate == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-6)
        optimizer.step()
        cosine.step()
    linear = TrainConfig(lr=0.4, warmup=0.0, schedule="linear")
    assert [learning_rate(linear, step, 4) for step in range(4)] == pytest.approx([0.4, 0.3, 0.2, 0.1])
    assert learning_rate(TrainConfig(lr=0.4, warmup=0.0, schedule="constant"), 3, 4) == 0.4
    assert (
        learning_rate(TrainConfig(lr=0.4, warmup=0.5), 49, 100)
        < 0.4
        == learning_rate(TrainConfig(lr=0.4, warmup=0.5), 50, 100)
    )


def test_googles_recipe_is_plain_momentum() -> None:
    config = TrainConfig(optimizer="sgd", lr=0.03, momentum=0.9, weight_decay=0.0)
    ours, theirs = (nn.Parameter(torch.ones(3, 2)) for _ in range(2))
    mine = make_optimizer(config, {"head.classifier.weight": ours}, depth=3)
    google = torch.optim.SGD([theirs], lr=0.03, momentum=0.9)
    for step in range(4):
        for parameter in (ours, theirs):
            parameter.grad = torch.full_like(parameter, 0.5 + step)
        set_learning_rate(mine, 0.03)
        mine.step()
        google.step()
    assert torch.allclose(ours, theirs)


def test_matrices_decay_and_nothing_else_does() -> None:
    model = tiny(layer_scale=0.1)
    groups = parameter_groups(TrainConfig(weight_decay=0.1), dict(model.named_parameters()), 3)
    decay = {name for group in groups if group["weight_decay"] for name in group["names"]}
    assert {name.rpartition(".")[2] for name in decay} == {"weight"}
    assert not any("norm" in name or "tokens" in name for name in decay)
    assert len(decay) == 1 + 3 * 4 + 1, "the stem, four matrices in each block, the classifier"


def test_layers_nearer_to_the_picture_learn_more_slowly() -> None:
    config = TrainConfig(layer_decay=0.5)
    groups = parameter_groups(config, dict(tiny().named_parameters()), 3)
    scale = {name: group["lr_scale"] for group in groups for name in group["names"]}
    assert scale["stem.proj.weight"] == scale["tokens.cls"] == 0.5**4 if "tokens.cls" in scale else True
    assert scale["encoder.blocks.0.norm1.weight"] == 0.5**3
    assert scale["encoder.blocks.2.mlp.fc1.weight"] == 0.5
    assert scale["encoder.norm.weight"] == scale["head.classifier.weight"] == 1.0


@pytest.mark.upstream
def test_the_layers_are_timms() -> None:
    peer("timm")
    from timm.models.vision_transformer import VisionTransformer as Theirs
    from timm.optim import param_groups_layer_decay

    theirs = Theirs(img_size=16, patch_size=8, embed_dim=32, depth=3, num_heads=2, num_classes=4)
    groups = param_groups_layer_decay(theirs, weight_decay=0.1, layer_decay=0.7)
    names = {id(p): name for name, p in theirs.named_parameters()}
    expected = {names[id(p)]: group["lr_scale"] for group in groups for p in group["params"]}
    norm = {name: expected.pop(name) for name in ("norm.weight", "norm.bias")}
    assert set(norm.values()) == {0.7}, (
        "timm has the last norm learn with the last block; BEiT, and vitrail, with the head"
    )
    for name, scale in expected.items():
        own = (
            name.replace("blocks.", "encoder.blocks.").replace("patch_embed.", "stem.").replace("cls_token", "tokens.")
        )
        own = own.replace("pos_embed", "tokens.position")
        assert 0.7 ** (4 - layer_of(own, 3)) == pytest.approx(scale), name


def test_clipping_is_torchs() -> None:
    draw = torch.Generator().manual_seed(0)
    gradients = [torch.randn(4, 3, generator=draw), torch.randn(7, generator=draw)]
    ours, theirs = ([nn.Parameter(torch.zeros_like(g)) for g in gradients] for _ in range(2))
    for parameters in (ours, theirs):
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient.clone()
    norm = gradient_norm(ours)
    torch.testing.assert_close(norm, nn.utils.clip_grad_norm_(theirs, 0.5))
    scale_gradients(ours, 0.5 / norm.item())
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-5, atol=1e-7)


def test_the_average_forgets_its_beginning_and_then_moves_by_its_decay() -> None:
    average = {"w": torch.zeros(1)}
    update_average(average, {"w": torch.ones(1)}, 0.99, step=0)
    assert average["w"].item() == pytest.approx(0.9), "a young one moves fast"
    update_average(average, {"w": torch.zeros(1)}, 0.99, step=10**6)
    assert average["w"].item() == pytest.approx(0.9 * 0.99)
    assert not math.isnan(average["w"].item())
