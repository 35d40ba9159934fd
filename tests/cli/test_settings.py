"""Who wins when two places set the same key, and what is refused."""

from pathlib import Path

import pytest

from vitrail.config import ResNetStem, ViTConfig
from vitrail.errors import ConfigError, UsageError
from vitrail.settings import Layer, from_environment, known_keys, parse_assignment, read_toml, resolve, stored

SECTIONS = {"model": ViTConfig}


def test_a_later_layer_wins_and_is_named() -> None:
    settings = resolve(SECTIONS, [Layer("preset", {"model.num_classes": 5}), Layer("flag", {"model.num_classes": 7})])
    assert settings.records["model"].num_classes == 7
    assert settings.origins["model.num_classes"] == "flag"


def test_a_nested_record_can_be_changed_in_part() -> None:
    base = stored("model", ViTConfig(resnet=ResNetStem(layers=(2, 2, 2, 2)), patch_size=(1, 1)), "R26")
    settings = resolve(SECTIONS, [base, Layer("--set", {"model.resnet.padding": "symmetric"})])
    assert settings.records["model"].resnet == ResNetStem(layers=(2, 2, 2, 2), padding="symmetric")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("model.image_size=384", 384),
        ("model.image_size=[224, 320]", [224, 320]),
        ("model.hidden_act=gelu_tanh", "gelu_tanh"),
        ("model.qkv_bias=false", False),
        ("model.layer_scale=none", None),
        ("model.layer_norm_eps=1e-5", 1e-5),
    ],
)
def test_assignments_are_toml_or_bare_words(text: str, value: object) -> None:
    assert parse_assignment(text) == (text.partition("=")[0], value)


def test_an_assignment_without_equals_is_refused() -> None:
    with pytest.raises(UsageError, match="key=value"):
        parse_assignment("model.image_size")


def test_the_environment_reaches_every_key() -> None:
    keys = list(known_keys(SECTIONS))
    spelled = ["VITRAIL_" + key.upper().replace(".", "_") for key in keys]
    assert len(set(spelled)) == len(keys)
    assert from_environment(SECTIONS, {"VITRAIL_MODEL_RESNET_WIDTH": "32"})[0].values == {"model.resnet.width": 32}


def test_a_misspelt_environment_variable_is_refused() -> None:
    with pytest.raises(ConfigError, match="VITRAIL_MODEL_IMAGE_SIZE"):
        from_environment(SECTIONS, {"VITRAIL_MODEL_IMAGE_SIZES": "32"})


def test_variables_of_other_kinds_are_left_alone() -> None:
    assert from_environment(SECTIONS, {"VITRAIL_CACHE": "/somewhere", "HOME": "/root"}) == []


def test_a_config_file_with_an_unknown_key_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text("[model]\nhiden_size = 3\n")
    with pytest.raises(ConfigError, match="hidden_size"):
        resolve(SECTIONS, [Layer("c.toml", read_toml(file, SECTIONS))])


@pytest.mark.parametrize("content", ["[model", "\x00"])
def test_a_broken_config_file_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "c.toml"
    file.write_text(content)
    with pytest.raises(ConfigError, match="not TOML"):
        read_toml(file, SECTIONS)


def test_a_wrong_type_names_the_field() -> None:
    with pytest.raises(ConfigError, match="hidden_size is 'big'"):
        resolve(SECTIONS, [Layer("flag", {"model.hidden_size": "big"})])
