"""Does a config that cannot work say so before a tensor is made, and name what would?"""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracle.tiny import TINY, tiny_config

from vitrail.config import Preprocess, ResNetStem, ViTConfig, build, replace
from vitrail.errors import ConfigError
from vitrail.model.vit import build_empty

REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "heads do not divide": ({"hidden_size": 30}, "hidden_size 30 .* 4 attention heads", "2, 3, 5 heads.*28 or 32.*dim"),
    "image against patch": ({"image_size": (30, 16)}, "30 x 16 pixels .* 4 x 4", "height of 28 or 32 .* width of 16"),
    "image under one patch": ({"image_size": 3}, "3 x 3 pixels", "height of 4 and a width of 4"),
    "activation": ({"hidden_act": "gelu_tan"}, "hidden_act is 'gelu_tan'", "Did you mean gelu_tanh"),
    "activation unlike any": ({"hidden_act": "xyz"}, "hidden_act is 'xyz'", "gelu, gelu_tanh, quick_gelu, relu, silu"),
    "pooling": ({"pooling": "tokens"}, "pooling is 'tokens'", "Did you mean token"),
    "field": ({"num_heads": 3}, "no field 'num_heads'", "num_attention_heads"),
    "a number as a word": ({"hidden_size": "32"}, "hidden_size is '32'", "whole number"),
    "a word as a pair": ({"image_size": "12"}, "image_size is '12'", "image_size"),
    "three sides": ({"patch_size": [4, 4, 4]}, r"patch_size is \(4, 4, 4\)", "length 2"),
    "no patch": ({"patch_size": 0}, r"patch_size is \(0, 0\)", "rows, columns.*1"),
    "no layers": ({"num_hidden_layers": 0}, "num_hidden_layers is 0", "1 or more"),
    "less than no classes": ({"num_classes": -1}, "num_classes is -1", "0 or more"),
    "certain dropout": ({"hidden_dropout_prob": 1.0}, "hidden_dropout_prob is 1", "below 1"),
    "heads of too few layers": ({"kept_heads": [[0]]}, "kept_heads lists 1 ", "has 2.*one list per layer"),
    "a head that never was": ({"kept_heads": [[0, 4], [1]]}, r"kept_heads\[0\] is \[0, 4\]", "0 to 3"),
    "a head twice": ({"kept_heads": [[0], [1, 1]]}, r"kept_heads\[1\] is \[1, 1\]", "Different numbers"),
    "token pooling without token": ({"class_token": False}, "no class token", "'mean' or 'map'"),
    "distillation and mean": ({"distillation_token": True, "pooling": "mean"}, "distillation", "pooling='token'"),
    "sincos of an odd width": ({"position": "sincos", "hidden_size": 6, "head_dim": 4}, "sin-cos", "multiple of 4"),
    "rotary of an odd head": ({"position": "rotary", "head_dim": 6}, "head_dim 6", "multiple of 4"),
    "token and mean, normed together": (
        {"pooling": "token_and_mean", "final_norm": "pooled"}, "final_norm is 'pooled'", "final_norm='tokens'"
    ),
    "stem width": ({"resnet": {"width": 40}}, "40 channels wide", "width=32"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_the_error_says_what_was_found_and_what_would_work(case: str) -> None:
    fields, found, fix = REFUSED[case]
    with pytest.raises(ConfigError) as caught:
        build(ViTConfig, TINY | fields)
    error = caught.value
    assert re.search(found, error.found), error.found
    assert re.search(fix, f"{error.expected} {error.fix}"), (error.expected, error.fix)
    assert error.exit_code == 2


def test_the_numbers_of_heads_an_error_names_work() -> None:
    for hidden, heads in ((30, 4), (768, 13), (7, 3), (64, 100)):
        with pytest.raises(ConfigError) as caught:
            tiny_config(hidden_size=hidden, num_attention_heads=heads)
        some, sizes = re.fullmatch(r"Use (.*) heads, hidden_size (.*), or set head_dim\.", caught.value.fix).groups()
        assert all(tiny_config(hidden_size=hidden, num_attention_heads=int(n)) for n in some.split(", "))
        assert all(tiny_config(hidden_size=int(n), num_attention_heads=heads) for n in sizes.split(" or "))


NONSENSE: dict[str, dict[str, Any]] = {
    "head_dim=0": {"head_dim": 0},
    "head_dim=-2": {"head_dim": -2},
    "representation_size=0": {"representation_size": 0},
    "representation_size=-3": {"representation_size": -3},
    "position_grid=(0, 2)": {"position_grid": (0, 2)},
    "layer_norm_eps=-1": {"layer_norm_eps": -1.0},
    "layer_norm_eps=nan": {"layer_norm_eps": float("nan")},
    "rotary_base=0": {"position": "rotary", "rotary_base": 0.0},
    "initializer_range=-1": {"initializer_range": -1.0},
    "a stage of no units": {"patch_size": 1, "resnet": {"layers": [0]}},
    "a stem of no channels": {"patch_size": 1, "resnet": {"width": 0}},
    "map pooling of heads that do not divide": {"pooling": "map", "num_attention_heads": 5, "head_dim": 4},
}


@pytest.mark.parametrize("case", NONSENSE)
def test_nonsense_is_refused(case: str) -> None:
    with pytest.raises(ConfigError):
        build(ViTConfig, TINY | NONSENSE[case])


PICTURES: dict[str, dict[str, Any]] = {
    "a picture of 0 pixels": {"size": (0, 8)},
    "a picture of 10**9 pixels": {"size": (10**9, 10**9)},
    "a shorter side of 0": {"resize": 0},
    "colours divided by 0": {"std": (0.5, 0.0, 0.5)},
    "colours divided by less than nothing": {"std": (0.5, -0.5, 0.5)},
    "a mean that is no number": {"mean": (0.5, float("nan"), 0.5)},
    "no colours": {"mean": (), "std": ()},
    "a mean without its deviation": {"mean": (0.5,)},
    "a filter nobody knows": {"interpolation": "bilinar"},
}


@pytest.mark.parametrize("case", PICTURES)
def test_pictures_that_cannot_be_prepared_are_refused(case: str) -> None:
    field = next(iter(PICTURES[case]))
    with pytest.raises(ConfigError, match=f"std|{field}"):
        build(Preprocess, PICTURES[case])


@pytest.mark.parametrize("field", ["hidden_act", "mlp", "pooling", "position", "initializer"])
def test_the_constructor_refuses_an_unknown_word_too(field: str) -> None:
    with pytest.raises(ConfigError):
        ViTConfig(**TINY | {field: "gelo"})


def test_a_changed_config_is_checked_again() -> None:
    with pytest.raises(ConfigError, match="14 x 12 pixels"):
        replace(tiny_config(), image_size=(14, 12))
    assert replace(tiny_config(), num_attention_heads=8).head_dim == 4
    assert tiny_config().image_size == (12, 8)


small = st.integers(1, 70)


@given(size=st.tuples(small, small), patch=st.tuples(st.integers(1, 9), st.integers(1, 9)))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_the_sizes_an_error_names_work(size: tuple[int, int], patch: tuple[int, int]) -> None:
    config = tiny_config(patch_size=patch, image_size=(patch[0] * 2, patch[1]))
    if size[0] % patch[0] == 0 and size[1] % patch[1] == 0:
        assert config.grid_for(size) == (size[0] // patch[0], size[1] // patch[1])
    else:
        assert_advice_works(config, size)


@given(size=st.tuples(small, small), layers=st.sampled_from([(), (1,), (1, 1), (1, 1, 1)]), patch=st.integers(1, 3))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_the_sizes_an_error_names_work_for_a_hybrid(size: tuple[int, int], layers: tuple[int, ...], patch: int) -> None:
    stem = ResNetStem(layers=layers, width=32)
    pixels = 4 * 2 ** max(len(layers) - 1, 0) * patch
    config = tiny_config(resnet=stem, patch_size=patch, image_size=pixels)
    try:
        rows, cols = config.grid_for(size)
    except ConfigError:
        assert_advice_works(config, size)
    else:
        assert (rows * patch, cols * patch) == stem.grid(size)


def test_the_sizes_an_error_names_work_for_a_stem_with_an_unpadded_pool() -> None:
    stem = ResNetStem(layers=(), width=32, padding="symmetric")
    config = tiny_config(resnet=stem, patch_size=8, image_size=36)  # 36 -> 18 -> 8
    with pytest.raises(ConfigError):
        config.grid_for((32, 32))
    assert_advice_works(config, (40, 40))


def assert_advice_works(config: ViTConfig, size: tuple[int, int]) -> None:
    with pytest.raises(ConfigError) as caught:
        config.grid_for(size)
    heights, widths = re.fullmatch(r"Resize to a height of (.*) and a width of (.*)\.", caught.value.fix).groups()
    for height in map(int, heights.split(" or ")):
        for width in map(int, widths.split(" or ")):
            rows, cols = config.grid_for((height, width))
            assert rows >= 1
            assert cols >= 1


@given(fields=st.fixed_dictionaries({}, optional={name: st.integers(0, 40) for name in (
    "hidden_size", "num_attention_heads", "num_hidden_layers", "intermediate_size", "num_classes", "num_register_tokens"
)}))  # fmt: skip
@settings(max_examples=60, deadline=None, derandomize=True)
def test_a_config_that_exists_makes_a_model(fields: dict[str, int]) -> None:
    try:
        config = build(ViTConfig, TINY | fields)
    except ConfigError:
        assume(False)
    model = build_empty(config)
    assert len(model.encoder.blocks) == config.num_hidden_layers
    assert all(parameter.is_meta for parameter in model.parameters())
