"""What is refused at the edge of the model, and what a direct ViTConfig(...) makes of its arguments."""

from typing import Any

import pytest
import torch
from oracle.tiny import random_images, random_model, tiny_config

import vitrail
from vitrail.config import ResNetStem, ViTConfig, replace
from vitrail.errors import ConfigError, UsageError
from vitrail.model.vit import VisionTransformer


@pytest.mark.parametrize(
    "fields",
    [
        {"hidden_size": "16"},
        {"image_size": 8.5},
        {"position_grid": 4},
        {"num_classes": True},
        {"layer_scale": float("nan")},
        {"resnet": {"layer": [1]}},
        {"hidden_act": 3},
    ],
    ids=str,
)
def test_the_constructor_refuses_wrong_types_and_names_the_field(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(fields))):
        ViTConfig(**fields)


def test_the_constructor_takes_an_int_for_a_square_and_a_dict_for_a_stem() -> None:
    config = ViTConfig(image_size=64, patch_size=1, resnet={"layers": [1]}, layer_norm_eps=1)
    assert (config.image_size, config.patch_size, config.layer_norm_eps) == ((64, 64), (1, 1), 1.0)
    assert config.resnet == ResNetStem(layers=(1,))


def test_a_head_dim_that_was_chosen_is_kept_when_sizes_change() -> None:
    chosen, derived = tiny_config(head_dim=6), tiny_config()
    assert replace(chosen, hidden_size=64).head_dim == 6
    assert replace(derived, hidden_size=64).head_dim == 16


@pytest.mark.parametrize("queries", [[99], [0, -99]])
def test_a_query_row_beyond_the_tokens_is_refused(queries: list[int]) -> None:
    config = tiny_config()
    with pytest.raises(ConfigError, match="no query row"):
        random_model(config).float()(random_images(config).float(), vitrail.Probe("*.weights", queries=queries))


@pytest.mark.parametrize("gates", [{7: [1.0] * 4}, {-1: [1.0] * 4}, {0: [1.0] * 5}, {0: [1.0] * 3}])
def test_gates_that_fit_no_layer_or_head_are_refused(gates: dict[int, list[float]]) -> None:
    config = tiny_config()
    with pytest.raises(ConfigError, match="scale_heads"):
        random_model(config).float()(random_images(config).float(), vitrail.Probe(scale_heads=gates))


def test_pictures_of_another_number_of_channels_are_refused() -> None:
    config = tiny_config()
    with pytest.raises(UsageError, match="batch x 3 x height x width"):
        random_model(config).float()(torch.zeros(1, 1, *config.image_size))


def test_labels_must_be_as_many_as_classes() -> None:
    with pytest.raises(ConfigError, match="There are 2 labels"):
        VisionTransformer(tiny_config(), labels=["cat", "dog"])
