"""Is it the right function? Float64 against the oracle, for every value of every convention."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from oracle import translate
from oracle.tiny import any_config, random_images, random_model, tiny_config, tiny_hybrid
from oracle.vit_numpy import How, forward

from vitrail.config import ResNetStem, ViTConfig, literal_values, replace
from vitrail.model.probe import Probe

PLAIN: dict[str, dict[str, Any]] = {
    "distillation token, norm after pooling": {"distillation_token": True, "final_norm": "pooled"},
    "defaults": {},
    **{f"hidden_act={act}": {"hidden_act": act} for act in literal_values(ViTConfig, "hidden_act")},
    **{f"mlp={mlp}": {"mlp": mlp, "hidden_act": "silu"} for mlp in literal_values(ViTConfig, "mlp")},
    **{f"pooling={pooling}": {"pooling": pooling} for pooling in literal_values(ViTConfig, "pooling")},
    **{f"final_norm={norm}": {"final_norm": norm} for norm in literal_values(ViTConfig, "final_norm")},
    **{f"position={kind}": {"position": kind} for kind in literal_values(ViTConfig, "position")},
    **{
        f"position_covers={covers}": {"position_covers": covers, "num_register_tokens": 3, "distillation_token": True}
        for covers in literal_values(ViTConfig, "position_covers")
    },
    **{
        f"position_covers={covers}, no class": {"position_covers": covers, "class_token": False, "pooling": "mean"}
        for covers in literal_values(ViTConfig, "position_covers")
    },
    **{f"layer_norm_eps={eps}": {"layer_norm_eps": eps} for eps in (1e-12, 1e-6, 1e-5, 1e-1)},
    "mean over patches after the norm": {"pooling": "mean", "final_norm": "pooled"},
    "map pooling, no class token": {"pooling": "map", "class_token": False, "hidden_act": "gelu_tanh"},
    "map pooling, swiglu": {"pooling": "map", "mlp": "swiglu", "hidden_act": "silu"},
    "map pooling, norm after": {"pooling": "map", "final_norm": "pooled"},
    "registers": {"num_register_tokens": 3},
    "registers, mean": {"num_register_tokens": 3, "pooling": "mean"},
    "distillation token": {"distillation_token": True},
    "distillation token, representation": {"distillation_token": True, "representation_size": 7},
    "no qkv bias": {"qkv_bias": False},
    "no key bias": {"key_bias": False},
    "no patch bias": {"patch_bias": False},
    "pre-norm": {"pre_norm": True},
    "qk norm": {"qk_norm": True},
    "layer scale": {"layer_scale": 1e-5},
    "representation": {"representation_size": 7},
    **{
        f"MLP head, {act}": {"representation_size": 7, "representation_act": act}
        for act in literal_values(ViTConfig, "representation_act")
    },
    "representation, no classifier": {"representation_size": 7, "num_classes": 0},
    "no classifier": {"num_classes": 0},
    "wide heads": {"head_dim": 12},
    "rotary, another base": {"position": "rotary", "rotary_base": 10_000.0},
    "rotary, registers, no key bias": {"position": "rotary", "num_register_tokens": 2, "key_bias": False},
    "rotary, qk norm, mean": {"position": "rotary", "qk_norm": True, "class_token": False, "pooling": "mean"},
    "sincos with registers": {"position": "sincos", "num_register_tokens": 2},
    "sincos, no class token": {"position": "sincos", "class_token": False, "pooling": "mean"},
    "tuple patches": {"patch_size": (2, 4)},
    "one patch": {"image_size": 4},
    "ragged edge refused": {"ragged_edge": "refuse"},
    "ragged edge cropped": {"ragged_edge": "crop", "image_size": (14, 11)},
    "1 channel": {"num_channels": 1},
    "5 channels": {"num_channels": 5},
    "one layer": {"num_hidden_layers": 1},
    "pruned heads": {"kept_heads": ((0, 3), (1,))},
    "pruned heads, a whole layer": {"kept_heads": ((), (0, 2, 3))},
    "pruned heads, the last layer": {"kept_heads": ((1, 2), ())},
    "pruned heads, rotary": {"kept_heads": ((1, 2), (3,)), "position": "rotary", "key_bias": False, "qk_norm": True},
    "pruned heads, no qkv bias": {"kept_heads": ((1, 2), ()), "qkv_bias": False},
    "everything": {
        "num_register_tokens": 2,
        "distillation_token": True,
        "position_covers": "all",
        "pre_norm": True,
        "qk_norm": True,
        "mlp": "swiglu",
        "hidden_act": "silu",
        "layer_scale": 0.1,
        "representation_size": 7,
        "kept_heads": ((0, 1, 3), (2,)),
        "key_bias": False,
        "patch_bias": False,
    },
}

HYBRID: dict[str, dict[str, Any]] = {
    "Google": {},
    "timm": {"group_norm_eps": 1e-5, "standardization": "var_plus", "standardization_eps": 1e-8},
    "jeonsworld": {
        "standardization": "var_plus", "padding": "symmetric", "shortcut_groups": "per_channel",
    },
    **{f"standardization={form}": {"standardization": form, "standardization_eps": 1e-2}
       for form in literal_values(ResNetStem, "standardization")},
    **{f"padding={padding}": {"padding": padding} for padding in literal_values(ResNetStem, "padding")},
    **{f"shortcut_groups={groups}": {"shortcut_groups": groups}
       for groups in literal_values(ResNetStem, "shortcut_groups")},
    "group_norm_eps": {"group_norm_eps": 1e-2},
    "root alone": {"layers": ()},
    "three stages": {"layers": (1, 2, 1)},
    "64 wide": {"layers": (1,), "width": 64},
}  # fmt: skip


def worst(config: ViTConfig, size: tuple[int, int] | None = None, how: How | None = None) -> float:
    """The largest difference to the oracle in logits, tokens or any attention weight; at most 1e-10 is agreement."""
    model, images = random_model(config).double(), random_images(config, size=size).double()
    layers = range(config.num_hidden_layers)
    probe = Probe("blocks.*.attn.weights", "blocks.*.out", "tokens.patches", "tokens.out", "head.pooled")
    with torch.no_grad():
        trimmed, logits, features = model(images), model(images, probe), model.features(images)
    seen = forward(translate.google_weights(model), translate.rows_cols_channels(images), how or translate.how(config))
    pairs = [(trimmed, seen["logits"]), (logits, seen["logits"]), (features, seen["norm"])]
    pairs += [(probe["tokens.patches"], seen["patch_embed"]), (probe["tokens.out"], seen["embed"])]
    pairs += [(probe[f"blocks.{i}.out"], seen[f"block_{i}"]) for i in layers]
    pairs += [(probe[f"blocks.{i}.attn.weights"], seen[f"attn_{i}"]) for i in layers]
    differences = [ours.numpy() - theirs for ours, theirs in pairs]  # shapes must be equal, not only broadcast
    assert all(ours.shape == theirs.shape for ours, theirs in pairs)
    return max(float(np.abs(difference).max(initial=0.0)) for difference in differences)


@pytest.mark.parametrize("case", PLAIN)
def test_a_plain_vit_agrees_with_the_oracle(case: str) -> None:
    assert worst(tiny_config(**PLAIN[case])) < 1e-10


@pytest.mark.parametrize("case", HYBRID)
def test_a_hybrid_agrees_with_the_oracle(case: str) -> None:
    assert worst(tiny_hybrid(**HYBRID[case])) < 1e-10


@given(config=any_config())
@settings(max_examples=40, deadline=None, derandomize=True)
def test_any_mix_of_features_agrees_with_the_oracle(config: ViTConfig) -> None:
    assert worst(config) < 1e-10


@pytest.mark.parametrize("method", literal_values(ViTConfig, "position_resampling"))
@pytest.mark.parametrize("pixels", [(20, 8), (8, 24), (4, 4), (36, 28)])
@pytest.mark.parametrize("covers", ["class", "patches"])
def test_a_picture_of_another_size_gets_the_same_positions_as_in_the_oracle(
    method: str, pixels: tuple[int, int], covers: str
) -> None:
    config = tiny_config(position_resampling=method, position_covers=covers)
    assert worst(config, size=pixels) < 1e-10


@pytest.mark.parametrize("position", ["rotary", "sincos", "none"])
def test_positions_without_a_table_follow_any_grid(position: str) -> None:
    assert worst(tiny_config(position=position), size=(20, 28)) < 1e-10


def test_a_table_learned_on_another_grid_than_the_models_own_agrees() -> None:
    assert worst(tiny_config(position_grid=(2, 5), position_resampling="timm", num_register_tokens=1)) < 1e-10


@pytest.mark.parametrize("resampling", literal_values(ViTConfig, "position_resampling"))
def test_a_hybrid_reads_a_picture_of_another_size(resampling: str) -> None:
    config = replace(tiny_hybrid(), position_resampling=resampling)
    assert worst(config, size=(50, 23)) < 1e-10


# A wrong convention must show: the same weights, one word changed in the oracle alone, and the agreement is gone.
CHANGED: dict[str, tuple[ViTConfig, dict[str, Any]]] = {
    "activation": (tiny_config(), {"activation": "gelu_tanh"}),
    "layer_norm_eps": (tiny_config(), {"layer_norm_eps": 1e-5}),
    "pooling": (tiny_config(), {"pooling": "mean"}),
    "rotary_base": (tiny_config(position="rotary"), {"rotary_base": 101.0}),
    "rotary": (tiny_config(position="rotary"), {"position": "none"}),
    "sincos": (tiny_config(position="sincos"), {"position": "none"}),
    "resampling": (tiny_config(position_grid=(2, 5), position_resampling="hf"), {"resampling": "timm"}),
    "group_norm_eps": (tiny_hybrid(), {"group_norm_eps": 1e-5}),
    "standardization": (tiny_hybrid(), {"standardization": "var_plus"}),
    "standardization_eps": (tiny_hybrid(), {"standardization_eps": 1e-6}),
    "shortcut_groups": (tiny_hybrid(), {"shortcut_groups": "per_channel"}),
}


@pytest.mark.parametrize("convention", CHANGED)
def test_one_convention_changed_in_the_oracle_alone_is_noticed(convention: str) -> None:
    config, change = CHANGED[convention]
    assert worst(config) < 1e-10
    assert worst(config, how=dataclasses.replace(translate.how(config), **change)) > 1e-8


def test_every_convention_of_the_config_is_tried() -> None:
    """A new field of ViTConfig or ResNetStem must come with a case above, or be named here with a reason."""
    elsewhere = {
        *("hidden_dropout_prob", "attention_probs_dropout_prob", "drop_path_rate"),  # test_training_mode.py
        *("initializer", "initializer_range"),  # test_init.py
        *("num_classes", "hidden_size", "num_attention_heads", "intermediate_size"),  # sizes: every case
        *("position_grid", "position_resampling", "resnet", "image_size"),  # functions of their own above
    }
    tried = set().union(*PLAIN.values())
    assert set(ViTConfig.__struct_fields__) - elsewhere - tried == set()
    assert set(ResNetStem.__struct_fields__) - set().union(*HYBRID.values()) == set()
    for kind, cases in ((ViTConfig, PLAIN), (ResNetStem, HYBRID)):
        for field in set(kind.__struct_fields__) - elsewhere:
            default = getattr(kind(), field)
            values = set(literal_values(kind, field)) or ({True, False} if isinstance(default, bool) else set())
            assert values <= {default} | {case[field] for case in cases.values() if field in case}, field
