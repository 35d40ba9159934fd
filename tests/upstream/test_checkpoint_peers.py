"""Does what the peers save open here with equal outputs, and what is saved here open there?

Real libraries, random weights, shapes drawn from a seed. Nothing is downloaded.
"""

from __future__ import annotations

import json
import random
from functools import partial

import pytest
import torch
from oracle.peers import peer
from safetensors.torch import load_file, save_file

from vitrail.checkpoint import container, load, save
from vitrail.config import ViTConfig, replace
from vitrail.errors import CheckpointError
from vitrail.model.vit import VisionTransformer, create

pytestmark = [pytest.mark.upstream, pytest.mark.filterwarnings("ignore")]
SEEDS = range(4)


def randomised(module, seed=0):
    """Every parameter random, none at its initial value."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            ones = parameter.ndim == 1 and name.endswith(("weight", "lambda1", "gamma"))
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2 + ones)
    return module.eval()


def drawn(seed: int) -> dict:
    """Sizes of a tiny model; heads, patches and layers vary."""
    draw = random.Random(seed)
    heads, patch = draw.choice([1, 2, 3, 5]), draw.choice([2, 4, 7])
    return {
        "hidden_size": heads * draw.choice([4, 8, 12]),
        "num_attention_heads": heads,
        "num_hidden_layers": draw.choice([1, 2, 3]),
        "intermediate_size": draw.choice([16, 20, 40]),
        "patch_size": patch,
        "image_size": patch * draw.choice([2, 3, 4]),
    }


def pictures(size, channels=3):
    rows, cols = (size, size) if isinstance(size, int) else size
    return torch.randn(2, channels, rows, cols, generator=torch.Generator().manual_seed(9))


def off(ours, theirs):
    return float((ours - theirs).abs().max())


# transformers
def hf_models(transformers):
    """Name: (config class, model class, fields beside the sizes, what its output is)."""
    t, classes = transformers, {"num_labels": 3}
    logits, pooled = (lambda o: o.logits), (lambda o: o.pooler_output)
    first, mean = (lambda o: o.last_hidden_state[:, 0]), (lambda o: o.last_hidden_state.mean(1))
    dinov2 = {"mlp_ratio": 3, "num_labels": 3}
    return {
        "ViT classes": (t.ViTConfig, t.ViTForImageClassification, classes, logits),
        "ViT features": (t.ViTConfig, t.ViTModel, {"pooler_output_size": 6}, pooled),
        "ViT no pooler": (t.ViTConfig, partial(t.ViTModel, add_pooling_layer=False), {}, first),
        "ViT without bias": (t.ViTConfig, t.ViTForImageClassification, classes | {"qkv_bias": False}, logits),
        "ViT tanh": (t.ViTConfig, t.ViTForImageClassification, classes | {"hidden_act": "gelu_pytorch_tanh"}, logits),
        "ViT one channel": (t.ViTConfig, t.ViTForImageClassification, classes | {"num_channels": 1}, logits),
        "DeiT teacher": (t.DeiTConfig, t.DeiTForImageClassificationWithTeacher, classes, logits),
        "DeiT classes": (t.DeiTConfig, t.DeiTForImageClassification, classes, logits),
        "DeiT features": (t.DeiTConfig, t.DeiTModel, {}, pooled),
        "I-JEPA": (t.IJepaConfig, t.IJepaForImageClassification, classes, logits),
        "I-JEPA features": (t.IJepaConfig, partial(t.IJepaModel, add_pooling_layer=False), {}, mean),
        "DINOv2": (t.Dinov2Config, t.Dinov2Model, {"mlp_ratio": 2}, pooled),
        "DINOv2 classes": (t.Dinov2Config, t.Dinov2ForImageClassification, dinov2, logits),
        "DINOv2 SwiGLU": (t.Dinov2Config, t.Dinov2Model, {"mlp_ratio": 2, "use_swiglu_ffn": True}, pooled),
        "registers": (t.Dinov2WithRegistersConfig, t.Dinov2WithRegistersModel, {"mlp_ratio": 2}, pooled),
        "registers SwiGLU": (
            t.Dinov2WithRegistersConfig,
            t.Dinov2WithRegistersForImageClassification,
            dinov2 | {"use_swiglu_ffn": True, "num_register_tokens": 2},
            logits,
        ),
        "SigLIP": (t.SiglipVisionConfig, t.SiglipVisionModel, {}, pooled),
        "CLIP": (t.CLIPVisionConfig, t.CLIPVisionModel, {}, pooled),
        "DINOv3": (t.DINOv3ViTConfig, t.DINOv3ViTModel, {"num_register_tokens": 3}, pooled),
        "DINOv3 bare": (t.DINOv3ViTConfig, t.DINOv3ViTModel, {}, pooled),
        "DINOv3 gated": (
            t.DINOv3ViTConfig,
            t.DINOv3ViTModel,
            {"use_gated_mlp": True, "hidden_act": "silu", "num_register_tokens": 4, "key_bias": True},
            pooled,
        ),
    }


HF_NAMES = (
    *("ViT classes", "ViT features", "ViT no pooler", "ViT without bias", "ViT tanh", "ViT one channel"),
    *("DeiT teacher", "DeiT classes", "DeiT features", "I-JEPA", "I-JEPA features"),
    *("DINOv2", "DINOv2 classes", "DINOv2 SwiGLU", "registers", "registers SwiGLU"),
    *("SigLIP", "CLIP", "DINOv3", "DINOv3 bare", "DINOv3 gated"),
)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", HF_NAMES)
def test_what_transformers_saves_opens_here_and_goes_back(name, seed, tmp_path):
    transformers = peer("transformers")
    config_class, model_class, extra, read_off = hf_models(transformers)[name]
    sizes = drawn(seed)
    if "mlp_ratio" in extra:
        sizes.pop("intermediate_size")
    if config_class is transformers.SiglipVisionConfig or config_class is transformers.CLIPVisionConfig:
        extra = {key: value for key, value in extra.items() if key != "num_labels"}
    config = config_class(**sizes, **extra)
    theirs = randomised(model_class(config), seed)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = load(tmp_path / "theirs")
    x = pictures(sizes["image_size"], extra.get("num_channels", 3))
    with torch.no_grad():
        expected = read_off(theirs(x))
        assert off(ours(x), expected) < 3e-5

        save(ours, tmp_path / "ours", "huggingface")
        base = model_class.func if isinstance(model_class, partial) else model_class
        again, info = base.from_pretrained(
            tmp_path / "ours",
            output_loading_info=True,
            **(model_class.keywords if isinstance(model_class, partial) else {}),
        )
        assert not info["missing_keys"]
        assert not info["unexpected_keys"]
        assert off(read_off(again.eval()(x)), expected) < 3e-5
    first = load_file(tmp_path / "theirs" / "model.safetensors")
    second = load_file(tmp_path / "ours" / "model.safetensors")
    if not name.startswith(("SigLIP", "CLIP")):  # those two lose a prefix in transformers 5; both forms are read
        assert first.keys() == second.keys()
        assert all(torch.equal(first[key], second[key]) for key in first)


@pytest.mark.parametrize("name", HF_NAMES)
def test_the_names_in_the_memory_of_transformers_are_read_too(name, tmp_path):
    transformers = peer("transformers")
    config_class, model_class, extra, read_off = hf_models(transformers)[name]
    sizes = drawn(1)
    if "mlp_ratio" in extra:
        sizes.pop("intermediate_size")
    theirs = randomised(model_class(config_class(**sizes, **extra)))
    theirs.config.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    base = model_class.func if isinstance(model_class, partial) else model_class
    (tmp_path / "config.json").write_text(json.dumps(config | {"architectures": [base.__name__]}))
    save_file({key: tensor.contiguous() for key, tensor in theirs.state_dict().items()}, tmp_path / "model.safetensors")
    x = pictures(sizes["image_size"], extra.get("num_channels", 3))
    with torch.no_grad():
        assert off(load(tmp_path)(x), read_off(theirs(x))) < 3e-5


def test_a_rectangle_opens_in_transformers(tmp_path):
    transformers = peer("transformers")
    config = ViTConfig(
        image_size=(12, 20), patch_size=(4, 5), hidden_size=12, num_hidden_layers=2, num_attention_heads=3,
        intermediate_size=24, num_classes=3,
    )  # fmt: skip
    ours = randomised(create(config))
    save(ours, tmp_path, "huggingface")
    theirs = transformers.ViTForImageClassification.from_pretrained(tmp_path).eval()
    x = pictures((12, 20))
    with torch.no_grad():
        assert off(ours(x), theirs(x).logits) < 3e-5


def test_a_model_with_heads_pruned_evenly_opens_in_transformers(tmp_path):
    transformers = peer("transformers")
    config = ViTConfig(
        image_size=8, patch_size=4, hidden_size=12, num_hidden_layers=2, num_attention_heads=3, intermediate_size=24,
        num_classes=3, kept_heads=((0, 2), (1, 2)),
    )  # fmt: skip
    ours = randomised(create(config))
    save(ours, tmp_path, "huggingface")
    theirs = transformers.ViTForImageClassification.from_pretrained(tmp_path).eval()
    again = load(tmp_path)
    with torch.no_grad():
        assert off(ours(pictures(8)), theirs(pictures(8)).logits) < 3e-5
        assert torch.equal(ours(pictures(8)), again(pictures(8)))
    assert again.config == config


def test_a_folder_that_went_through_transformers_comes_back(tmp_path):
    """vitrail -> transformers with another head -> vitrail: what transformers knows, wins."""
    transformers = peer("transformers")
    config = ViTConfig(
        image_size=8, patch_size=4, hidden_size=12, num_hidden_layers=2, num_attention_heads=3, intermediate_size=24,
        num_classes=3, position_resampling="google",
    )  # fmt: skip
    save(randomised(create(config)), tmp_path / "first")
    theirs = transformers.ViTForImageClassification.from_pretrained(
        tmp_path / "first", num_labels=7, ignore_mismatched_sizes=True
    )
    randomised(theirs).save_pretrained(tmp_path / "second")
    again = load(tmp_path / "second")
    with torch.no_grad():
        assert off(again(pictures(8)), theirs(pictures(8)).logits) < 3e-5
    assert again.config.num_classes == 7
    assert again.config.position_resampling == "google"  # transformers has no field for it, and kept ours


def test_shards_are_read_as_one(tmp_path):
    transformers = peer("transformers")
    sizes = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 64}
    config = transformers.ViTConfig(**sizes, image_size=16, patch_size=4, num_labels=3)
    theirs = randomised(transformers.ViTForImageClassification(config))
    theirs.save_pretrained(tmp_path, max_shard_size="30KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    x = pictures(theirs.config.image_size)
    with torch.no_grad():
        assert off(load(tmp_path)(x), theirs(x).logits) < 3e-5


def test_the_removed_hybrid_is_read_by_its_old_names(tmp_path):
    """Its stem still exists as Bit, its body as a ViT over one-pixel patches; together they are what was removed."""
    transformers = peer("transformers")
    bit = transformers.BitConfig(
        embedding_size=32, hidden_sizes=[128, 256, 512], depths=[2, 1, 1], global_padding="same", num_groups=32,
        layer_type="bottleneck", embedding_dynamic_padding=True, out_features=["stage3"],
    )  # fmt: skip
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24}
    stem = randomised(transformers.BitBackbone(bit))
    body = transformers.ViTConfig(**sizes, image_size=4, patch_size=1, num_channels=512, num_labels=3)
    vit = randomised(transformers.ViTForImageClassification(body), 1)
    vit.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors |= {f"vit.embeddings.patch_embeddings.backbone.{key}": value for key, value in stem.state_dict().items()}
    save_file(tensors, tmp_path / "model.safetensors")
    backbone = {"depths": [2, 1, 1], "embedding_size": 32}
    config = vars(body) | {"model_type": "vit-hybrid", "image_size": 64, "num_channels": 3, "backbone_config": backbone}
    keys = [*sizes, "model_type", "image_size", "num_channels", "patch_size", "backbone_config", "layer_norm_eps"]
    (tmp_path / "config.json").write_text(
        json.dumps({key: config[key] for key in keys} | {"architectures": ["ViTHybridForImageClassification"]})
    )
    x = pictures(64)
    with torch.no_grad():
        expected = vit(stem(x).feature_maps[0]).logits
        ours = load(tmp_path)
        assert off(ours(x), expected) < 5e-5
    save(ours, tmp_path / "timm", "timm")
    assert torch.equal(load(tmp_path / "timm")(x), ours(x))


# timm
TIMM = {
    "plain": {},
    "mean": {"global_pool": "avg"},
    "mean, norm before": {"global_pool": "avg", "fc_norm": False},
    "token, norm after": {"fc_norm": True},
    "no class token": {"class_token": False, "global_pool": "avg"},
    "registers": {"reg_tokens": 4},
    "registers without positions": {"reg_tokens": 3, "no_embed_class": True, "init_values": 1e-5},
    "layer scale": {"init_values": 1e-5},
    "map": {"class_token": False, "global_pool": "map", "act_layer": "gelu_tanh"},
    "qk_norm": {"qk_norm": True},
    "no bias": {"qkv_bias": False},
    "pre norm": {"pre_norm": True},
    "no positions": {"pos_embed": "none"},
    "features": {"num_classes": 0},
    "rectangle": {"img_size": (8, 12), "patch_size": (4, 2)},
    "two channels": {"in_chans": 2},
}


def timm_arguments(seed):
    sizes = drawn(seed)
    ratio = sizes["intermediate_size"] / sizes["hidden_size"]
    return {
        "img_size": sizes["image_size"], "patch_size": sizes["patch_size"], "embed_dim": sizes["hidden_size"],
        "depth": sizes["num_hidden_layers"], "num_heads": sizes["num_attention_heads"], "mlp_ratio": ratio,
        "num_classes": 3,
    }  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", TIMM)
def test_what_timm_saves_opens_here_and_goes_back(name, seed, tmp_path):
    timm = peer("timm")
    arguments = timm_arguments(seed) | TIMM[name]
    theirs = randomised(timm.create_model("vit_tiny_patch16_224", **arguments), seed)
    channels = arguments.get("in_chans", 3)
    x = pictures(arguments["img_size"], channels)
    path = tmp_path / "theirs.safetensors"
    save_file({key: tensor.contiguous() for key, tensor in theirs.state_dict().items()}, path)
    said = {"num_attention_heads": arguments["num_heads"], "image_size": arguments["img_size"]}
    said |= {"hidden_act": arguments["act_layer"]} if "act_layer" in arguments else {}
    said |= {"pooling": "mean"} if arguments.get("global_pool") == "avg" else {}
    said |= {"pooling": "token"} if name == "token, norm after" else {}
    said |= {"position": "none"} if name == "no positions" else {}
    ours = load(path, **said)
    with torch.no_grad():
        assert off(ours(x), theirs(x)) < 3e-5

        save(ours, tmp_path / "ours", "timm")
        again = timm.create_model(f"local-dir:{tmp_path / 'ours'}", pretrained=True).eval()
        assert off(again(x), theirs(x)) < 3e-5
    first, second = load_file(path), load_file(tmp_path / "ours" / "model.safetensors")
    assert first.keys() == second.keys()
    assert all(torch.equal(first[key], second[key]) for key in first)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_folder_of_timm_says_what_its_tensors_do_not(seed, tmp_path):
    timm = peer("timm")
    arguments = timm_arguments(seed) | {"global_pool": "avg", "fc_norm": False, "act_layer": "gelu_tanh"}
    theirs = randomised(timm.create_model("vit_tiny_patch16_224", **arguments), seed)
    save_file({key: tensor.contiguous() for key, tensor in theirs.state_dict().items()}, tmp_path / "model.safetensors")
    side = arguments["img_size"]
    cfg = {"input_size": [3, side, side], "mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6], "crop_pct": 0.9}
    config = {"architecture": "vit_tiny_patch16_224", "num_classes": 3, "global_pool": "avg", "model_args": arguments}
    config |= {"label_names": ["ant", "bee", "cat"], "pretrained_cfg": cfg}
    (tmp_path / "config.json").write_text(json.dumps(config))
    ours = load(tmp_path)
    with torch.no_grad():
        assert off(ours(pictures(side)), theirs(pictures(side))) < 3e-5
    assert ours.labels == ["ant", "bee", "cat"]
    assert ours.preprocess.mean == (0.1, 0.2, 0.3)


def test_timm_distilled_and_swiglu_and_hybrids(tmp_path):
    timm = peer("timm")
    small = {"embed_dim": 32, "depth": 2, "num_heads": 4, "num_classes": 3, "img_size": 32}
    models = {
        "deit_tiny_distilled_patch16_224": small | {"patch_size": 8, "mlp_ratio": 2.0},
        "vit_giant_patch14_dinov2": small | {"patch_size": 8, "mlp_ratio": 3.0},
        "vit_tiny_r_s16_p8_224": small | {"img_size": 64, "mlp_ratio": 2.0},
        "vit_small_r26_s32_224": small | {"img_size": 64, "mlp_ratio": 2.0},
    }
    for index, (architecture, arguments) in enumerate(models.items()):
        theirs = randomised(timm.create_model(architecture, **arguments), index)
        path = tmp_path / f"{architecture}.safetensors"
        save_file({key: tensor.contiguous() for key, tensor in theirs.state_dict().items()}, path)
        ours = load(path, num_attention_heads=4, image_size=arguments["img_size"])
        x = pictures(arguments["img_size"])
        with torch.no_grad():
            assert off(ours(x), theirs(x)) < 5e-5
            save(ours, tmp_path / architecture, "timm")
            again = timm.create_model(f"local-dir:{tmp_path / architecture}", pretrained=True).eval()
            assert off(again(x), theirs(x)) < 5e-5


@pytest.mark.parametrize("gated", [False, True])
def test_dinov2_with_registers_opens_in_timm_by_its_original_names(gated, tmp_path):
    timm = peer("timm")
    width = {"mlp": "swiglu", "hidden_act": "silu"} if gated else {}
    config = ViTConfig(
        image_size=16, patch_size=4, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=32,
        num_classes=0, layer_scale=1e-5, num_register_tokens=4, **width,
    )  # fmt: skip
    ours = randomised(create(config))
    save(ours, tmp_path, "timm")
    theirs = timm.create_model(f"local-dir:{tmp_path}", pretrained=True).eval()
    with torch.no_grad():
        assert off(ours(pictures(16)), theirs(pictures(16))) < 3e-5
    assert load(tmp_path).config == config


# torchvision
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("representation", [None, 10])
def test_what_torchvision_saves_opens_here_and_goes_back(seed, representation, tmp_path):
    torchvision = peer("torchvision")
    sizes = drawn(seed)
    theirs = torchvision.models.VisionTransformer(
        image_size=sizes["image_size"], patch_size=sizes["patch_size"], num_layers=sizes["num_hidden_layers"],
        num_heads=sizes["num_attention_heads"], hidden_dim=sizes["hidden_size"], mlp_dim=sizes["intermediate_size"],
        num_classes=3, representation_size=representation,
    )  # fmt: skip
    randomised(theirs, seed)
    torch.save(theirs.state_dict(), tmp_path / "theirs.pth")
    x = pictures(sizes["image_size"])
    ours = load(tmp_path / "theirs.pth", from_pickle=True, num_attention_heads=sizes["num_attention_heads"])
    with torch.no_grad():
        expected = theirs(x)
        assert off(ours(x), expected) < 3e-5
        save(ours, tmp_path / "ours", "torchvision")
        theirs.load_state_dict(load_file(tmp_path / "ours" / "model.safetensors"))
        assert off(theirs(x), expected) == 0


# the route from anywhere to anywhere
def test_a_plain_model_goes_round_every_format_and_back_bit_for_bit(tmp_path):
    config = ViTConfig(
        image_size=16, patch_size=4, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40,
        num_classes=3,
    )  # fmt: skip
    model: VisionTransformer = randomised(create(config))
    here = model
    for step, name in enumerate(("google", "huggingface", "timm", "torchvision", "jeonsworld", "google", "native")):
        save(here, tmp_path / str(step), name)
        here = load(tmp_path / str(step))
    assert here.config == replace(config)
    assert all(torch.equal(here.state_dict()[key], tensor) for key, tensor in model.state_dict().items())
    assert container.read(tmp_path / "0" / "model.npz").tensors["head/kernel"].shape == (24, 3)


# the towers of models with two
def two_towers(transformers, seed):
    sizes = drawn(seed)
    text = {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 24,
        "vocab_size": 50,
    }
    return sizes, {"vision_config": sizes, "text_config": text}


@pytest.mark.parametrize("seed", SEEDS)
def test_siglips_vision_tower_is_found_in_the_whole_model(seed, tmp_path):
    transformers = peer("transformers")
    sizes, configs = two_towers(transformers, seed)
    theirs = randomised(transformers.SiglipModel(transformers.SiglipConfig(**configs)), seed)
    theirs.save_pretrained(tmp_path)
    ours = load(tmp_path)
    x = pictures(sizes["image_size"])
    with torch.no_grad():
        assert off(ours(x), theirs.vision_model(x).pooler_output) < 3e-5
    assert "text tower" in ours.origin.ignored.values()


@pytest.mark.parametrize("seed", SEEDS)
def test_siglip_with_classes_averages_and_keeps_the_pool_it_does_not_use(seed, tmp_path):
    transformers = peer("transformers")
    sizes, configs = two_towers(transformers, seed)
    config = transformers.SiglipConfig(**configs, num_labels=3)
    theirs = randomised(transformers.SiglipForImageClassification(config), seed)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = load(tmp_path / "theirs")
    x = pictures(sizes["image_size"])
    with torch.no_grad():
        assert off(ours(x), theirs(x).logits) < 3e-5
    assert "head.probe" in ours.origin.kept
    save(ours, tmp_path / "ours")
    again = transformers.SiglipForImageClassification.from_pretrained(tmp_path / "ours").eval()
    with torch.no_grad():
        assert off(again(x).logits, theirs(x).logits) < 3e-5
    first, second = (load_file(tmp_path / name / "model.safetensors") for name in ("theirs", "ours"))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_clips_vision_tower_is_found_in_the_whole_model(tmp_path):
    transformers = peer("transformers")
    sizes, configs = two_towers(transformers, 1)
    theirs = randomised(transformers.CLIPModel(transformers.CLIPConfig(**configs)))
    theirs.save_pretrained(tmp_path)
    ours = load(tmp_path)
    x = pictures(sizes["image_size"])
    with torch.no_grad():
        assert off(ours(x), theirs.vision_model(x).pooler_output) < 3e-5
    assert ours.origin.kept == ["visual_projection.weight"]


def test_attention_pooling_as_big_vision_names_it_is_what_transformers_computes(tmp_path):
    """SigLIP's weights under big_vision's names, mapped here by hand."""
    import numpy as np

    transformers = peer("transformers")
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 40}
    theirs = randomised(
        transformers.SiglipVisionModel(transformers.SiglipVisionConfig(**sizes, image_size=16, patch_size=4))
    )
    state = {key: tensor.numpy() for key, tensor in theirs.state_dict().items()}
    file = {
        "params/img/embedding/kernel": state["embeddings.patch_embedding.weight"].transpose(2, 3, 1, 0),
        "params/img/embedding/bias": state["embeddings.patch_embedding.bias"],
        "params/img/pos_embedding": state["embeddings.position_embedding.weight"][None],
        "params/img/MAPHead_0/probe": state["head.probe"],
    }

    def norm(theirs, ours):
        file.update({f"{ours}/scale": state[f"{theirs}.weight"], f"{ours}/bias": state[f"{theirs}.bias"]})

    def dense(theirs, ours):
        file.update({f"{ours}/kernel": state[f"{theirs}.weight"].T, f"{ours}/bias": state[f"{theirs}.bias"]})

    def heads(weight, bias, ours):
        file[f"{ours}/kernel"] = weight.T.reshape(24, 3, 8)
        file[f"{ours}/bias"] = bias.reshape(3, 8)

    def out(theirs, ours):
        file[f"{ours}/kernel"] = state[f"{theirs}.weight"].T.reshape(3, 8, 24)
        file[f"{ours}/bias"] = state[f"{theirs}.bias"]

    for i in range(2):
        block, layer = f"params/img/Transformer/encoderblock_{i}", f"encoder.layers.{i}"
        attention = f"{block}/MultiHeadDotProductAttention_0"
        norm(f"{layer}.layer_norm1", f"{block}/LayerNorm_0")
        norm(f"{layer}.layer_norm2", f"{block}/LayerNorm_1")
        for letter, name in (("q", "query"), ("k", "key"), ("v", "value")):
            one = f"{layer}.self_attn.{letter}_proj"
            heads(state[f"{one}.weight"], state[f"{one}.bias"], f"{attention}/{name}")
        out(f"{layer}.self_attn.out_proj", f"{attention}/out")
        dense(f"{layer}.mlp.fc1", f"{block}/MlpBlock_0/Dense_0")
        dense(f"{layer}.mlp.fc2", f"{block}/MlpBlock_0/Dense_1")
    norm("post_layernorm", "params/img/Transformer/encoder_norm")
    pool = "params/img/MAPHead_0"
    weights, biases = (np.split(state[f"head.attention.in_proj_{leaf}"], 3) for leaf in ("weight", "bias"))
    for name, weight, bias in zip(("query", "key", "value"), weights, biases, strict=True):
        heads(weight, bias, f"{pool}/MultiHeadDotProductAttention_0/{name}")
    out("head.attention.out_proj", f"{pool}/MultiHeadDotProductAttention_0/out")
    norm("head.layernorm", f"{pool}/LayerNorm_0")
    dense("head.mlp.fc1", f"{pool}/MlpBlock_0/Dense_0")
    dense("head.mlp.fc2", f"{pool}/MlpBlock_0/Dense_1")
    np.savez(tmp_path / "siglip.npz", **file, **{"params/t": np.ones(1), "params/txt/x": np.ones(2)})
    ours = load(tmp_path / "siglip.npz")
    with torch.no_grad():
        assert off(ours(pictures(16)), theirs(pictures(16)).pooler_output) < 3e-5


def test_what_timm_pools_otherwise_is_refused(tmp_path):
    timm = peer("timm")
    arguments = timm_arguments(1) | {"class_token": False, "global_pool": "map", "reg_tokens": 2}
    theirs = timm.create_model("vit_tiny_patch16_224", **arguments)
    save_file({key: tensor.contiguous() for key, tensor in theirs.state_dict().items()}, tmp_path / "x.safetensors")
    with pytest.raises(CheckpointError, match="attention pooling beside"):
        load(tmp_path / "x.safetensors", num_attention_heads=arguments["num_heads"])
