"""What a file cannot say: is it asked for, taken from beside it, or taken for granted and said?"""

import json
import math

import pytest
import torch

from vitrail.checkpoint import container, inspect, load, save
from vitrail.config import ViTConfig
from vitrail.errors import CheckpointError, ConfigError

from .tiny import BASE, CONFIGS, picture, random_model


@pytest.fixture
def bare(tmp_path):
    """A timm file with nothing beside it, and the model in it."""
    model = random_model(CONFIGS["plain"])
    save(model, tmp_path / "timm", "timm")
    tensors = container.read(tmp_path / "timm" / "model.safetensors").tensors
    container.write_safetensors(tmp_path / "bare.safetensors", tensors)
    return tmp_path / "bare.safetensors", model


def write(path, tensors, config=None):
    path.mkdir(exist_ok=True)
    container.write_safetensors(path / "model.safetensors", tensors)
    if config is not None:
        (path / "config.json").write_text(json.dumps(config))
    return path


def test_the_heads_of_a_fused_weight_are_asked_for_by_name(bare):
    path, model = bare
    with pytest.raises(CheckpointError) as refused:
        load(path)
    assert "num_attention_heads" in refused.value.found
    assert "12 wide, 2 blocks, MLP 20" in refused.value.found
    assert "1, 2, 3, 4, 6, 12" in refused.value.expected
    assert "--set num_attention_heads" in refused.value.fix
    assert torch.equal(load(path, num_attention_heads=3)(picture(model.config)), model(picture(model.config)))


def test_the_known_variant_of_the_same_sizes_fills_in_the_heads_and_says_so(tmp_path):
    config = ViTConfig(image_size=8, patch_size=4, hidden_size=32, num_hidden_layers=1, intermediate_size=128,
                       num_attention_heads=2, num_classes=2)  # fmt: skip
    save(random_model(config), tmp_path / "timm", "timm")
    tensors = container.read(tmp_path / "timm" / "model.safetensors").tensors
    container.write_safetensors(tmp_path / "bare.safetensors", tensors)
    model = load(tmp_path / "bare.safetensors")
    assert model.config.num_attention_heads == 2
    assert any("num_attention_heads=2: as in ViT-mu" in line for line in model.origin.assumptions)
    assert inspect(tmp_path / "bare.safetensors").variant == "mu/4"


def test_a_config_beside_the_file_comes_before_a_guess_and_the_caller_before_both(bare):
    path, _ = bare
    config = {"architecture": "vit_tiny_patch16_224", "model_args": {"num_heads": 6, "act_layer": "gelu_tanh"}}
    (path.parent / "config.json").write_text(json.dumps(config | {"pretrained_cfg": {"input_size": [3, 8, 8]}}))
    model = load(path)
    assert (model.config.num_attention_heads, model.config.hidden_act) == (6, "gelu_tanh")
    assert load(path, num_attention_heads=2).config.num_attention_heads == 2


@pytest.mark.parametrize(
    ("field", "value"),
    [("hidden_size", 24), ("num_hidden_layers", 3), ("qk_norm", True), ("class_token", False), ("layer_scale", 1e-5)],
)
def test_a_caller_who_contradicts_the_tensors_is_told_so(bare, field, value):
    path, _ = bare
    with pytest.raises(CheckpointError, match=f"The tensors say {field}"):
        load(path, num_attention_heads=3, **{field: value})


def test_a_config_that_contradicts_the_tensors_is_refused(tmp_path):
    save(random_model(CONFIGS["plain"]), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for field, value in {"hidden_size": 16, "image_size": 16, "qkv_bias": False, "id2label": {"0": "x"}}.items():
        (tmp_path / "config.json").write_text(json.dumps(config | {field: value}))
        with pytest.raises(CheckpointError):
            load(tmp_path)


NONSENSE = {
    "image size": {"image_size": "big"},
    "heads": {"num_attention_heads": 0},
    "heads that do not divide": {"num_attention_heads": 5},
    "heads as text": {"num_attention_heads": "three"},
    "activation": {"hidden_act": "xielu"},
    "epsilon": {"layer_norm_eps": -1},
    "labels": {"id2label": {"a": 1}},
    "labels as a list": {"id2label": ["a", "b", "c", "d", "e"]},
    "block": {"vitrail": {"config": {"no_such_field": 1}}},
    "block as text": {"vitrail": "everything"},
    "block's config as a list": {"vitrail": {"config": [1, 2]}},
    "block's preprocess": {"vitrail": {"preprocess": {"size": [8, "x"]}}},
    "nested": {"vision_config": [1]},
}


@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_in_a_config_ends_in_an_error_about_the_checkpoint(name, tmp_path):
    save(random_model(CONFIGS["plain"]), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | NONSENSE[name]))
    with pytest.raises(CheckpointError):
        load(tmp_path)


@pytest.mark.parametrize("shape", ["rows that make no square", "empty", "deep"])
def test_tensors_of_impossible_shape_end_in_an_error_about_the_checkpoint(shape, bare):
    path, _ = bare
    tensors = container.read(path).tensors
    if shape == "rows that make no square":
        tensors["pos_embed"] = torch.zeros(1, 8, 12)
    elif shape == "empty":
        tensors["head.weight"] = torch.zeros(2**31 - 1, 0)
    else:
        tensors["head.weight"] = torch.zeros(1, 1, 5, 12)
    container.write_safetensors(path, tensors)
    with pytest.raises(CheckpointError):
        load(path, num_attention_heads=3)


def test_a_gap_between_blocks_is_refused_without_building_what_is_not_there(bare):
    path, _ = bare
    tensors = container.read(path).tensors
    moved = {key.replace("blocks.1.", "blocks.999999999999."): tensor for key, tensor in tensors.items()}
    container.write_safetensors(path, moved)
    with pytest.raises(CheckpointError, match="without a gap"):
        load(path, num_attention_heads=3)


def test_a_stack_of_billions_of_empty_layers_is_refused_at_once(tmp_path):
    save(random_model(CONFIGS["plain"]), tmp_path / "model.npz", "google")
    tensors = container.read(tmp_path / "model.npz").tensors
    tensors["Transformer/encoderblock/LayerNorm_0/scale"] = torch.zeros(2**31 - 1, 0)
    container.write_safetensors(tmp_path / "model.safetensors", tensors)
    with pytest.raises(CheckpointError):
        load(tmp_path / "model.safetensors")


def test_quantised_weights_are_refused_not_cast(bare):
    path, _ = bare
    tensors = container.read(path).tensors
    tensors["head.weight"] = (tensors["head.weight"] * 100).to(torch.int8)
    container.write_safetensors(path, tensors)
    with pytest.raises(CheckpointError, match="int8"):
        load(path, num_attention_heads=3)


def test_missing_and_unexplained_keys_are_shown_side_by_side(bare):
    path, _ = bare
    tensors = container.read(path).tensors
    tensors["blocks.1.attn.qkv.wait"] = tensors.pop("blocks.1.attn.qkv.weight")
    container.write_safetensors(path, tensors)
    with pytest.raises(CheckpointError) as refused:
        load(path, num_attention_heads=3)
    assert "< blocks.1.attn.qkv.wait [36, 12]: no row explains it" in refused.value.found
    assert "> encoder.blocks.1.attn.qkv.weight [36, 12]: blocks.1.attn.qkv.weight not there" in refused.value.found
    assert "'timm'" in refused.value.expected
    report = inspect(path, num_attention_heads=3)
    assert any("blocks.1.attn.qkv.wait" in line for line in report.problems)


@pytest.mark.parametrize("prefix", ["module.", "model.", "backbone."])
def test_a_wrapper_in_front_of_every_key_is_seen_through(prefix, bare):
    path, model = bare
    tensors = {prefix + key: tensor for key, tensor in container.read(path).tensors.items()}
    container.write_safetensors(path, tensors)
    again = load(path, num_attention_heads=3)
    assert again.origin.prefix == prefix
    assert torch.equal(again(picture(model.config)), model(picture(model.config)))


@pytest.mark.parametrize("prefix", ["opt/target/", "params/", "params/img/"])
def test_googles_prefixes_come_and_go_with_what_training_left_behind(prefix, tmp_path):
    model = random_model(CONFIGS["plain"])
    save(model, tmp_path / "plain.npz", "google")
    (tmp_path / "plain.json").unlink()
    tensors = {prefix + key: tensor for key, tensor in container.read(tmp_path / "plain.npz").tensors.items()}
    extra = {"opt/state/step": torch.ones(1)} if prefix.startswith("opt") else {"params/t": torch.ones(1)}
    container.write_npz(tmp_path / "wrapped.npz", tensors | extra)
    again = load(tmp_path / "wrapped.npz", hidden_act="gelu")
    assert list(again.origin.ignored) == list(extra)
    assert torch.equal(again(picture(model.config)), model(picture(model.config)))
    save(again, tmp_path / "back", "google")
    assert set(container.read(tmp_path / "back" / "model.npz").tensors) == set(tensors)


def test_a_rectangular_table_is_never_taken_for_a_square(tmp_path):
    config = ViTConfig(**BASE | {"image_size": (8, 32)})  # 2 x 8 patches: as many as 4 x 4
    save(random_model(config), tmp_path, "native")
    assert load(tmp_path).config == config
    tensors = container.read(tmp_path / "model.safetensors").tensors
    (tmp_path / "bare").mkdir()
    container.write_safetensors(tmp_path / "bare" / "x.safetensors", tensors)
    asked = load(tmp_path / "bare" / "x.safetensors", num_attention_heads=3, image_size=(8, 32), layer_norm_eps=1e-6)
    assert torch.equal(asked(picture(config)), load(tmp_path)(picture(config)))
    assert any("2 x 8 patches" in line for line in asked.origin.assumptions)


def test_a_picture_that_does_not_divide_is_cropped_where_the_source_crops_it(tmp_path):
    config = ViTConfig(**BASE | {"image_size": 10}, ragged_edge="crop")
    model = random_model(config)
    save(model, tmp_path)
    stated = json.loads((tmp_path / "config.json").read_text())
    stated["vitrail"]["config"].pop("ragged_edge", None)
    (tmp_path / "config.json").write_text(json.dumps(stated))
    again = load(tmp_path)
    assert again.config.ragged_edge == "crop"
    assert torch.equal(again(picture(config)), model(picture(config)))


def test_two_normalisations_beside_one_model_are_refused(tmp_path):
    save(random_model(CONFIGS["registers"]), tmp_path)
    assert load(tmp_path).preprocess.mean == (0.5, 0.5, 0.5)
    path = tmp_path / "preprocessor_config.json"
    path.write_text(path.read_text().replace("0.5", "0.4"))
    with pytest.raises(CheckpointError, match=r"image_mean \[0.4, 0.4, 0.4\]; the vitrail block .* \[0.5"):
        load(tmp_path)


def test_a_field_nobody_knows_and_a_value_of_the_wrong_kind_are_usage_errors(bare):
    path, _ = bare
    with pytest.raises(ConfigError, match="num_attention_heads"):
        load(path, num_attention_head=3)
    with pytest.raises(ConfigError, match="num_attention_heads is 'three'"):
        load(path, num_attention_heads="three")


def test_a_report_says_what_a_reader_wants_to_know(tmp_path):
    save(random_model(CONFIGS["registers"]), tmp_path, "timm")
    report = inspect(tmp_path)
    assert (report.origin, report.table, report.dtype) == ("timm", "timm", "float32")
    assert report.prefix_tokens == ["class", "register 0", "register 1", "register 2", "register 3"]
    assert (report.grid, report.image_size, report.patch_size) == ((2, 2), (8, 8), (4, 4))
    assert report.parameters == sum(math.prod(t.shape) for t in load(tmp_path).state_dict().values())
    assert report.conventions["position_covers"] == "all"
    assert report.problems == []
