"""The walk shows what really runs."""

import pytest
import torch

import vitrail
from vitrail.explain.stages import STAGES, row_of
from vitrail.explain.trace import Trace
from vitrail.model.probe import Probe
from vitrail.model.variants import config_for
from vitrail.model.vit import VisionTransformer, build_empty

TINY = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24, "num_hidden_layers": 2, "image_size": 32}


def shapes(walk: Trace) -> dict[str, tuple[int, ...]]:
    return {stage.name: stage.output for stage in walk.stages}


def test_the_documents_walk_has_the_documents_shapes() -> None:
    walk = vitrail.trace(build_empty(config_for("B/16", num_classes=100, representation_size=768)), batch=32)
    seen = shapes(walk)
    assert seen["images"] == (32, 3, 224, 224)
    assert seen["stem.out"] == (32, 768, 14, 14)
    assert seen["tokens.patches"] == (32, 196, 768)
    assert seen["tokens.class"] == (32, 1, 768)
    assert seen["tokens.concat"] == (32, 197, 768)
    assert seen["tokens.positions"] == (1, 197, 768)
    for layer in range(12):
        for part in "qkv":
            assert seen[f"blocks.{layer}.attn.{part}"] == (32, 12, 197, 64)
        assert seen[f"blocks.{layer}.attn.scores"] == (32, 12, 197, 197)
        assert seen[f"blocks.{layer}.attn.weights"] == (32, 12, 197, 197)
        assert seen[f"blocks.{layer}.mlp.hidden"] == (32, 197, 3072)
        assert seen[f"blocks.{layer}.out"] == (32, 197, 768)
    assert seen["norm.out"] == (32, 197, 768)
    assert seen["head.pooled"] == (32, 768)
    assert seen["head.representation"] == (32, 768)
    assert seen["logits"] == (32, 100)


@pytest.mark.parametrize(
    "name",
    ["Ti/16", "R26+S/32", "R+Ti/16", "deit_tiny_distilled_patch16_224", "vit_base_patch16_siglip_224", "dinov2-giant"],
)
def test_every_parameter_belongs_to_exactly_one_stage(name: str) -> None:
    walk = vitrail.trace(build_empty(config_for(name)), batch=1)
    assert sum(stage.parameters for stage in walk.stages) == walk.parameters


@pytest.mark.parametrize(
    "changes",
    [
        {"qk_norm": True, "key_bias": False, "layer_scale": 0.1, "pre_norm": True, "num_register_tokens": 2},
        {"pooling": "map", "class_token": False, "final_norm": "pooled", "mlp": "swiglu", "hidden_act": "silu"},
        {"kept_heads": ((), (1,)), "pooling": "token_and_mean", "position": "sincos", "num_channels": 1},
        {"position": "rotary", "head_dim": 8, "representation_size": 5, "image_size": (32, 48)},
    ],
)
def test_every_kind_of_model_can_be_walked(changes: dict[str, object]) -> None:
    walk = vitrail.trace(build_empty(config_for("mu/16", **(TINY | {"num_classes": 3} | changes))), batch=2)
    assert sum(stage.parameters for stage in walk.stages) == walk.parameters
    assert walk.stages[-1].output == (2, 3)


# timm's published GMACs (PEERS.md gives R+Ti/16's 0.44) count the same products, attention's own left out or in.
@pytest.mark.parametrize(("name", "billions"), [("B/16", 17.56), ("Ti/16", 1.25), ("L/16", 61.55), ("R+Ti/16", 0.44)])
def test_multiply_adds_are_those_published(name: str, billions: float) -> None:
    walk = vitrail.trace(build_empty(config_for(name)), batch=1)
    assert walk.multiply_adds / 1e9 == pytest.approx(billions, abs=0.03)


def test_multiply_adds_agree_with_torchs_own_counter() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    for changes in ({}, {"pooling": "map", "class_token": False}, {"mlp": "swiglu", "hidden_act": "silu"}):
        model = tiny(**changes).bfloat16()  # in 16-bit, attention is plain products, which torch counts on a CPU
        images = torch.randn(2, 3, 32, 32, dtype=torch.bfloat16)
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            model.head(model.features(images))
        assert vitrail.trace(model, images).multiply_adds == counter.get_total_flops() // 2


def tiny(**changes: object) -> VisionTransformer:
    return vitrail.create("mu/16", seed=0, **(TINY | {"num_classes": 3, "initializer": "hf"} | changes))


def test_live_numbers_are_those_of_the_tensors() -> None:
    model, images = tiny(), torch.randn(2, 3, 32, 32)
    probe = Probe("*")
    model(images, probe)
    for stage in vitrail.trace(model, images).stages:
        tensor = probe[stage.name]
        assert stage.live is not None
        assert stage.output == tuple(tensor.shape)
        assert stage.live.mean == pytest.approx(tensor.mean().item(), abs=1e-6)
        assert stage.live.std == pytest.approx(tensor.std(correction=0).item(), abs=1e-6)
        assert (stage.live.min, stage.live.max) == (tensor.min().item(), tensor.max().item())


def test_each_stage_starts_where_an_earlier_one_ended() -> None:
    walk = vitrail.trace(tiny(), batch=1)
    ended = {()}
    for stage in walk.stages[1:]:
        ended.add(walk.stages[0].output)
        assert stage.input in ended, stage.name
        ended.add(stage.output)


def test_the_stage_table_names_only_what_a_model_offers() -> None:
    offered: set[str] = set()
    for changes in (
        {"num_register_tokens": 1, "distillation_token": True},
        {"pre_norm": True},
        {"patch_size": 1, "resnet": {"layers": (1, 1, 1)}, "image_size": 64},
    ):
        probe = Probe("*")
        model = tiny(**changes)
        model(torch.randn(1, 3, *model.config.image_size), probe)
        offered |= set(probe)
    keys = {key for key, row in STAGES.items() if any(row_of(name)[0] is row for name in offered)}
    assert keys == set(STAGES)
