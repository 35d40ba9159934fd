"""Does every format hold what it says it holds, and refuse the rest by name?"""

import json

import pytest
import torch

from vitrail.checkpoint import container, convert, inspect, load, save
from vitrail.checkpoint.capacity import FEATURES, HOLDS, lacking
from vitrail.checkpoint.hf_config import nearest_family
from vitrail.config import Preprocess, ResNetStem, ViTConfig, replace
from vitrail.errors import CheckpointError, UsageError

from .tiny import BASE, CONFIGS, picture, random_model

FORMATS = ("native", "huggingface", "google", "timm", "torchvision", "jeonsworld")


def holds(config, name):
    if name == "native":
        return True
    return not nearest_family(config)[1] if name == "huggingface" else not lacking(config, name)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("kind", CONFIGS)
def test_a_saved_model_comes_back_bit_for_bit_with_everything_that_travels_with_it(kind, name, tmp_path):
    config = CONFIGS[kind]
    model = random_model(config)
    model.labels = [f"class {index}" for index in range(config.num_classes)]
    colours = {"mean": (0.1,) * config.num_channels, "std": (0.2,) * config.num_channels}
    model.preprocess = Preprocess(size=config.image_size, resize=37, center_crop=True, interpolation="box", **colours)
    if not holds(config, name):
        with pytest.raises(CheckpointError, match=r"no place for|no such model"):
            save(model, tmp_path, name)
        return
    save(model, tmp_path, name)
    again = load(tmp_path)
    assert again.config == config
    assert again.labels == model.labels
    assert again.preprocess == model.preprocess
    ours, theirs = model.state_dict(), again.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)
    assert torch.equal(again(picture(config)), model(picture(config)))
    assert not again.training


def test_each_feature_is_exercised_by_some_config():
    seen = {name for config in CONFIGS.values() for name, feature in FEATURES.items() if feature.there(config)}
    others = {"jeonsworld_stem", "sincos", "no_positions", "ragged", "map_prefix"}
    assert seen | others == set(FEATURES)
    assert set(HOLDS["timm"]) | set(HOLDS["google"]) <= set(FEATURES)


@pytest.mark.parametrize("name", ["google", "timm", "torchvision", "jeonsworld", "native"])
def test_one_file_holds_a_whole_model(name, tmp_path):
    model = random_model(CONFIGS["plain"])
    model.labels = list("abcde")
    target = tmp_path / ("model.npz" if name == "google" else "model.safetensors")
    files = save(model, target, name)
    assert files[0] == target
    again = load(target)
    assert again.config == model.config
    assert again.labels == model.labels
    assert torch.equal(again(picture(model.config)), model(picture(model.config)))


def test_the_wrong_ending_and_an_unknown_format_are_refused_before_anything_is_written(tmp_path):
    model = random_model(CONFIGS["plain"])
    with pytest.raises(UsageError, match="npz"):
        save(model, tmp_path / "x" / "model.safetensors", "google")
    with pytest.raises(UsageError, match="Did you mean timm"):
        save(model, tmp_path / "x", "tim")
    assert not (tmp_path / "x").exists()


def test_a_folder_never_holds_two_models(tmp_path):
    model = random_model(CONFIGS["plain"])
    save(model, tmp_path, "google")
    with pytest.raises(UsageError, match=r"already holds model\.npz"):
        save(model, tmp_path, "native")
    save(model, tmp_path, "google")  # over itself is fine


def test_a_model_can_be_saved_over_the_file_it_came_from(tmp_path):
    save(random_model(CONFIGS["plain"]), tmp_path)
    model = load(tmp_path)
    save(model, tmp_path)
    assert torch.equal(load(tmp_path)(picture(model.config)), model(picture(model.config)))


LOSSY = {
    "pre-logits": ("timm", "dense layer before the classifier"),
    "distilled": ("google", "distillation token"),
    "registers": ("torchvision", "register tokens"),
    "layer scale": ("jeonsworld", "LayerScale"),
    "unread token": ("torchvision", "register tokens"),
}


@pytest.mark.parametrize("kind", LOSSY)
def test_what_a_format_cannot_hold_is_named_refused_and_left_out_only_on_request(kind, tmp_path):
    name, what = LOSSY[kind]
    save(random_model(CONFIGS[kind]), tmp_path / "source")
    with pytest.raises(CheckpointError, match=what) as refused:
        convert(tmp_path / "source", tmp_path / "target", name)
    assert "--lossy" in refused.value.fix
    assert not (tmp_path / "target").exists()
    report = convert(tmp_path / "source", tmp_path / "target", name, lossy=True)
    assert any(what in line for line in report.dropped)
    assert load(tmp_path / "target").config.num_classes in (0, 5)


def test_folding_layer_scale_keeps_the_function(tmp_path):
    model = random_model(CONFIGS["layer scale"])
    save(model, tmp_path, "google", lossy=True)
    folded = load(tmp_path)
    assert folded.config.layer_scale is None
    assert torch.allclose(folded(picture(model.config)), model(picture(model.config)), atol=1e-5)


def test_a_stem_of_jeonsworlds_kind_is_not_passed_off_as_googles():
    stem = ResNetStem(layers=(1, 1), width=32, padding="symmetric", shortcut_groups="per_channel")
    config = replace(CONFIGS["hybrid"], resnet=stem)
    assert set(lacking(config, "google")) == {"jeonsworld_stem"}
    assert set(lacking(CONFIGS["hybrid"], "jeonsworld")) == {"google_stem"}
    assert not lacking(config, "jeonsworld")


def test_a_tanh_model_in_a_format_without_tanh_is_said_and_measured(tmp_path):
    save(random_model(replace(CONFIGS["plain"], hidden_act="gelu_tanh")), tmp_path / "source", "google")
    report = convert(tmp_path / "source", tmp_path / "target", "torchvision")
    assert report.deviations == ["hidden_act=gelu_tanh here; torchvision's own software computes with gelu"]
    assert 1e-6 < max(report.native_logits_difference.values()) < 1e-2
    assert set(report.logits_difference.values()) == {0.0}
    assert load(tmp_path / "target").config.hidden_act == "gelu_tanh"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_a_conversion_keeps_the_number_format_and_a_load_computes_in_float32(dtype, tmp_path):
    save(random_model(CONFIGS["plain"]).to(dtype), tmp_path / "source.npz", "google")
    report = convert(tmp_path / "source.npz", tmp_path / "target", "native")
    assert report.tensors_equal
    assert report.result.dtype == str(dtype).removeprefix("torch.")
    assert {tensor.dtype for tensor in container.read(tmp_path / "target" / "model.safetensors").tensors.values()} == {
        dtype
    }
    assert {tensor.dtype for tensor in load(tmp_path / "target").state_dict().values()} == {torch.float32}
    assert next(load(tmp_path / "target", dtype=dtype).parameters()).dtype == dtype


def test_a_conversion_onto_its_own_source_is_refused(tmp_path):
    save(random_model(CONFIGS["plain"]), tmp_path)
    with pytest.raises(UsageError, match="both source and target"):
        convert(tmp_path, tmp_path, "native")


def test_tensors_nobody_uses_come_back_where_there_is_a_place_and_are_reported_where_not(tmp_path):
    model = random_model(CONFIGS["dinov2"])
    save(model, tmp_path / "hf")
    tensors = container.read(tmp_path / "hf" / "model.safetensors").tensors
    mask = torch.randn(1, 12)
    container.write_safetensors(tmp_path / "hf" / "model.safetensors", {**tensors, "embeddings.mask_token": mask})
    assert inspect(tmp_path / "hf").kept == ["mask_token"]
    convert(tmp_path / "hf", tmp_path / "again", "native")
    assert torch.equal(container.read(tmp_path / "again" / "model.safetensors").tensors["embeddings.mask_token"], mask)
    scaled = convert(tmp_path / "hf", tmp_path / "google", "google", lossy=True)
    assert any(line.startswith("mask_token: no model uses it") for line in scaled.dropped)


def test_config_json_is_what_transformers_would_write(tmp_path):
    model = random_model(CONFIGS["plain"])
    model.labels = list("abcde")
    save(model, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["model_type"] == "vit"
    assert config["architectures"] == ["ViTForImageClassification"]
    assert config["id2label"]["2"] == "c"
    assert config["label2id"]["c"] == 2
    assert config["vitrail"] == {"config": {"initializer": "google"}}
    assert (tmp_path / "preprocessor_config.json").is_file()
    assert "ViTForImageClassification" in (tmp_path / "README.md").read_text()


def test_a_model_only_vitrail_has_does_not_open_as_another(tmp_path):
    save(random_model(CONFIGS["pre-logits"]), tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "vitrail"


@pytest.mark.parametrize("position", ["sincos", "none", "rotary"])
def test_models_without_a_table_keep_their_positions(position, tmp_path):
    model = random_model(ViTConfig(**BASE, position=position))
    save(model, tmp_path)
    again = load(tmp_path)
    assert again.config == model.config
    assert torch.equal(again(picture(model.config)), model(picture(model.config)))
