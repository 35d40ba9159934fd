"""Can model/ express what the well-known families are? Their code, our code, the same random weights, mapped by hand.

Every name is written out here, so that nothing of vitrail.checkpoint takes part.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from oracle.peers import peer
from oracle.tiny import tiny_config, tiny_hybrid
from torch import Tensor, nn

from vitrail.config import ViTConfig, replace
from vitrail.model.probe import Probe
from vitrail.model.vit import VisionTransformer

pytestmark = [pytest.mark.upstream, pytest.mark.filterwarnings("ignore")]

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24}
HF = SIZES | {"image_size": 16, "patch_size": 4}
OURS: dict[str, Any] = HF | {"num_classes": 0}


def randomised(model: nn.Module) -> nn.Module:
    """Every parameter random, in float64, evaluating."""
    draw = np.random.RandomState(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_scale = parameter.dim() == 1 and name.endswith("weight")
            parameter.copy_(torch.from_numpy(draw.standard_normal(parameter.shape)) * 0.3 + is_scale)
    return model.double().eval()


def images(rows: int = 16, cols: int = 16) -> Tensor:
    return torch.from_numpy(np.random.RandomState(1).standard_normal((2, 3, rows, cols)))


def ours(config: ViTConfig, weights: dict[str, Tensor]) -> VisionTransformer:
    """Our model with exactly these weights: each of its parameters must be given, and nothing else."""
    model = VisionTransformer(config).double().eval()
    own = model.state_dict()
    model.load_state_dict({name: tensor.reshape(own[name].shape) for name, tensor in weights.items()})
    return model


def encoder(state: dict[str, Tensor], layers: str, names: dict[str, str | tuple[str, ...]]) -> dict[str, Tensor]:
    """Both blocks. `names` maps our leaf to theirs; several of theirs are stacked."""
    out = {}
    for layer in range(2):
        for mine, theirs in names.items():
            parts = [theirs] if isinstance(theirs, str) else theirs
            out[f"encoder.blocks.{layer}.{mine}"] = torch.cat([state[f"{layers}.{layer}.{part}"] for part in parts])
    return out


def pairs(names: dict[str, str | tuple[str, ...]]) -> dict[str, str | tuple[str, ...]]:
    """weight and bias of each module."""
    return {
        f"{mine}.{leaf}": f"{theirs}.{leaf}" if isinstance(theirs, str) else tuple(f"{name}.{leaf}" for name in theirs)
        for mine, theirs in names.items()
        for leaf in ("weight", "bias")
    }


def top(state: dict[str, Tensor], names: dict[str, str]) -> dict[str, Tensor]:
    return {mine: state[theirs] for mine, theirs in names.items()}


def difference(one: Tensor, other: Tensor) -> float:
    assert one.shape == other.shape
    return (one - other).abs().max().item()


HF_BLOCK = {
    "norm1": "layernorm_before", "norm2": "layernorm_after", "mlp.fc1": "mlp.fc1", "mlp.fc2": "mlp.fc2",
    "attn.qkv": ("attention.q_proj", "attention.k_proj", "attention.v_proj"), "attn.proj": "attention.o_proj",
}  # fmt: skip
HF_TOP = {
    "tokens.class_token": "embeddings.cls_token", "tokens.position.table": "embeddings.position_embeddings",
    "stem.proj.weight": "embeddings.patch_embeddings.projection.weight",
    "stem.proj.bias": "embeddings.patch_embeddings.projection.bias",
    "encoder.norm.weight": "layernorm.weight", "encoder.norm.bias": "layernorm.bias",
}  # fmt: skip
CLIP_BLOCK = {
    "norm1": "layer_norm1", "norm2": "layer_norm2", "mlp.fc1": "mlp.fc1", "mlp.fc2": "mlp.fc2",
    "attn.qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), "attn.proj": "self_attn.out_proj",
}  # fmt: skip
DINO_BLOCK = {
    "norm1": "norm1", "norm2": "norm2", "attn.proj": "attention.o_proj",
    "attn.qkv": ("attention.q_proj", "attention.k_proj", "attention.v_proj"),
}  # fmt: skip
DINO_SCALE = {"scale1": "layer_scale1.lambda1", "scale2": "layer_scale2.lambda1"}
DINO_MLP = {"mlp.fc1": "mlp.fc1", "mlp.fc2": "mlp.fc2"}
DINO_GATED = {"mlp.fc1": ("mlp.gate_proj", "mlp.up_proj"), "mlp.fc2": "mlp.down_proj"}


@torch.no_grad()
def test_vit_with_pooler() -> None:
    transformers = peer("transformers")
    theirs = randomised(transformers.ViTModel(transformers.ViTConfig(**HF, pooler_output_size=7, layer_norm_eps=1e-12)))
    state = theirs.state_dict()
    weights = encoder(state, "layers", pairs(HF_BLOCK)) | top(state, HF_TOP | {
        "head.representation.weight": "pooler.dense.weight", "head.representation.bias": "pooler.dense.bias",
    })  # fmt: skip
    model = ours(tiny_config(**OURS, representation_size=7, layer_norm_eps=1e-12), weights)
    for size in ((16, 16), (24, 12)):
        out = theirs(images(*size), interpolate_pos_encoding=True)
        assert difference(model(images(*size)), out.pooler_output) < 1e-10
        assert difference(model.features(images(*size)), out.last_hidden_state) < 1e-10


@torch.no_grad()
@pytest.mark.parametrize("gated", [False, True])
def test_dinov3_turns_queries_and_keys_as_we_do(gated: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    transformers = peer("transformers")
    theirs_in = transformers.models.dinov3_vit.modeling_dinov3_vit
    centres = theirs_in.get_patches_center_coordinates  # in float32 there, as far as 6e-7 from the truth

    def exact(rows: int, cols: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        return centres(rows, cols, dtype=torch.float64, device=device)

    config = transformers.DINOv3ViTConfig(
        **HF, num_register_tokens=3, use_gated_mlp=gated, hidden_act="silu" if gated else "gelu", layer_norm_eps=1e-5
    )
    theirs = randomised(transformers.DINOv3ViTModel(config))
    rounded = theirs(images()).last_hidden_state
    monkeypatch.setattr(theirs_in, "get_patches_center_coordinates", exact)
    theirs.rope_embeddings.inv_freq = 1 / 100.0 ** torch.arange(0, 1, 4 / 8, dtype=torch.float64)
    state = theirs.state_dict()
    block = pairs(DINO_BLOCK | (DINO_GATED if gated else {"mlp.fc1": "mlp.up_proj", "mlp.fc2": "mlp.down_proj"}))
    block |= DINO_SCALE
    block["attn.query_value_bias"] = ("attention.q_proj.bias", "attention.v_proj.bias")
    del block["attn.qkv.bias"]
    weights = encoder(state, "model.layer", block) | top(state, {
        "tokens.class_token": "embeddings.cls_token", "tokens.register_tokens": "embeddings.register_tokens",
        "stem.proj.weight": "embeddings.patch_embeddings.weight", "stem.proj.bias": "embeddings.patch_embeddings.bias",
        "encoder.norm.weight": "norm.weight", "encoder.norm.bias": "norm.bias",
    })  # fmt: skip
    extra = {"mlp": "swiglu", "hidden_act": "silu"} if gated else {}
    model = ours(tiny_config(
        **OURS, **extra, position="rotary", num_register_tokens=3, layer_scale=1.0, key_bias=False, layer_norm_eps=1e-5
    ), weights)  # fmt: skip
    assert difference(model.features(images()), rounded) < 1e-5
    for size in ((16, 16), (12, 28)):
        out = theirs(images(*size))
        assert difference(model.features(images(*size)), out.last_hidden_state) < 1e-10
        assert difference(model(images(*size)), out.pooler_output) < 1e-10


@torch.no_grad()
def test_clips_vision_tower() -> None:
    transformers = peer("transformers")
    theirs = randomised(transformers.CLIPVisionModel(transformers.CLIPVisionConfig(**HF, hidden_act="quick_gelu")))
    state = theirs.state_dict()
    weights = encoder(state, "encoder.layers", pairs(CLIP_BLOCK)) | top(state, {
        "tokens.class_token": "embeddings.class_embedding",
        "tokens.position.table": "embeddings.position_embedding.weight",
        "stem.proj.weight": "embeddings.patch_embedding.weight",
        "tokens.norm.weight": "pre_layrnorm.weight", "tokens.norm.bias": "pre_layrnorm.bias",
        "encoder.norm.weight": "post_layernorm.weight", "encoder.norm.bias": "post_layernorm.bias",
    })  # fmt: skip
    config = tiny_config(**OURS, pre_norm=True, patch_bias=False, hidden_act="quick_gelu", layer_norm_eps=1e-5)
    model, probe = ours(config, weights), Probe("blocks.1.out")
    out = theirs(images())
    assert difference(model(images()), out.pooler_output) < 1e-10
    model(images(), probe)
    assert difference(probe["blocks.1.out"], out.last_hidden_state) < 1e-10  # theirs is before the norm


@torch.no_grad()
def test_siglips_vision_tower() -> None:
    transformers = peer("transformers")
    theirs = randomised(transformers.SiglipVisionModel(transformers.SiglipVisionConfig(**HF)))
    state = theirs.state_dict()
    weights = encoder(state, "encoder.layers", pairs(CLIP_BLOCK)) | top(state, {
        "tokens.position.table": "embeddings.position_embedding.weight",
        "stem.proj.weight": "embeddings.patch_embedding.weight", "stem.proj.bias": "embeddings.patch_embedding.bias",
        "encoder.norm.weight": "post_layernorm.weight", "encoder.norm.bias": "post_layernorm.bias",
        "head.pool.query": "head.probe",
        "head.pool.qkv.weight": "head.attention.in_proj_weight", "head.pool.qkv.bias": "head.attention.in_proj_bias",
        "head.pool.proj.weight": "head.attention.out_proj.weight",
        "head.pool.proj.bias": "head.attention.out_proj.bias",
        "head.pool.norm.weight": "head.layernorm.weight", "head.pool.norm.bias": "head.layernorm.bias",
        "head.pool.mlp.fc1.weight": "head.mlp.fc1.weight", "head.pool.mlp.fc1.bias": "head.mlp.fc1.bias",
        "head.pool.mlp.fc2.weight": "head.mlp.fc2.weight", "head.pool.mlp.fc2.bias": "head.mlp.fc2.bias",
    })  # fmt: skip
    config = tiny_config(**OURS, class_token=False, pooling="map", hidden_act="gelu_tanh", layer_norm_eps=1e-6)
    model = ours(config, weights)
    for size in ((16, 16), (24, 12)):
        out = theirs(images(*size), interpolate_pos_encoding=True)
        assert difference(model(images(*size)), out.pooler_output) < 1e-10
        assert difference(model.features(images(*size)), out.last_hidden_state) < 1e-10


@torch.no_grad()
@pytest.mark.parametrize("gated", [False, True])
def test_dinov2_with_registers_reads_class_token_and_mean(gated: bool) -> None:
    transformers = peer("transformers")
    sizes = {name: value for name, value in HF.items() if name != "intermediate_size"}
    config = transformers.Dinov2WithRegistersConfig(**sizes, num_register_tokens=3, use_swiglu_ffn=gated, num_labels=5)
    theirs = randomised(transformers.Dinov2WithRegistersForImageClassification(config))
    state = {name.removeprefix("dinov2_with_registers."): value for name, value in theirs.state_dict().items()}
    block = pairs(DINO_BLOCK | (DINO_GATED if gated else DINO_MLP)) | DINO_SCALE
    weights = encoder(state, "encoder.layer", block) | top(state, HF_TOP | {
        "tokens.register_tokens": "embeddings.register_tokens",
        "head.classifier.weight": "classifier.weight", "head.classifier.bias": "classifier.bias",
    })  # fmt: skip
    wide = len(weights["encoder.blocks.0.mlp.fc2.weight"][0])
    extra = {"mlp": "swiglu", "hidden_act": "silu"} if gated else {}
    model = ours(tiny_config(**OURS | extra | {
        "intermediate_size": wide, "num_register_tokens": 3, "layer_scale": 1.0, "num_classes": 5,
        "pooling": "token_and_mean", "position_covers": "class", "layer_norm_eps": 1e-6,
    }), weights)  # fmt: skip
    out = theirs.dinov2_with_registers(images())
    assert difference(model.features(images()), out.last_hidden_state) < 1e-10
    assert difference(model(images()), theirs(images()).logits) < 1e-10


@torch.no_grad()
def test_deit_with_its_teacher() -> None:
    transformers = peer("transformers")
    config = transformers.DeiTConfig(**HF, num_labels=5)
    theirs = randomised(transformers.DeiTForImageClassificationWithTeacher(config))
    state = {name.removeprefix("deit."): value for name, value in theirs.state_dict().items()}
    weights = encoder(state, "layers", pairs(HF_BLOCK)) | top(state, HF_TOP | {
        "tokens.distillation_token": "embeddings.distillation_token",
        "head.classifier.weight": "cls_classifier.weight", "head.classifier.bias": "cls_classifier.bias",
        "head.classifier_distilled.weight": "distillation_classifier.weight",
        "head.classifier_distilled.bias": "distillation_classifier.bias",
    })  # fmt: skip
    model = ours(tiny_config(**OURS | {"num_classes": 5, "distillation_token": True, "layer_norm_eps": 1e-12}), weights)
    assert difference(model(images()), theirs(images()).logits) < 1e-10


# timm and torchvision ----------------------------------------------------------------------------------------------

TIMM_BLOCK = {
    "norm1": "norm1", "norm2": "norm2", "attn.qkv": "attn.qkv", "attn.proj": "attn.proj", "mlp.fc1": "mlp.fc1",
    "mlp.fc2": "mlp.fc2",
}  # fmt: skip
TIMM_QK = {"attn.q_norm": "attn.q_norm", "attn.k_norm": "attn.k_norm"}
TIMM_TOP = {
    "tokens.position.table": "pos_embed", "stem.proj.weight": "patch_embed.proj.weight",
    "stem.proj.bias": "patch_embed.proj.bias", "head.classifier.weight": "head.weight",
    "head.classifier.bias": "head.bias",
}  # fmt: skip
TIMM_NORM = {"encoder.norm.weight": "norm.weight", "encoder.norm.bias": "norm.bias"}
TIMM_CLASS = {"tokens.class_token": "cls_token"}

TIMM: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, str], dict[str, Any]]] = {
    # name: timm's arguments, our fields, top-level names, block names
    "plain": ({}, {}, TIMM_CLASS | TIMM_NORM, {}),
    "qk norm, layer scale, pre-norm": (
        {"qk_norm": True, "init_values": 0.1, "pre_norm": True},
        {"qk_norm": True, "layer_scale": 0.1, "pre_norm": True, "patch_bias": False},
        TIMM_CLASS | TIMM_NORM | {"tokens.norm.weight": "norm_pre.weight", "tokens.norm.bias": "norm_pre.bias"},
        pairs(TIMM_QK) | {"scale1": "ls1.gamma", "scale2": "ls2.gamma"},
    ),
    "mean, norm after pooling, registers": (
        {"global_pool": "avg", "reg_tokens": 3},
        {"pooling": "mean", "final_norm": "pooled", "num_register_tokens": 3, "position_covers": "all"},
        TIMM_CLASS | {"tokens.register_tokens": "reg_token", "head.norm.weight": "fc_norm.weight",
                      "head.norm.bias": "fc_norm.bias"},
        {},
    ),
    "registers outside the table, no class token": (
        {"global_pool": "avg", "reg_tokens": 3, "class_token": False, "no_embed_class": True, "fc_norm": False},
        {"pooling": "mean", "num_register_tokens": 3, "position_covers": "patches", "class_token": False},
        TIMM_NORM | {"tokens.register_tokens": "reg_token"},
        {},
    ),
    "no qkv bias, rectangular": (
        {"qkv_bias": False, "img_size": (8, 24)}, {"qkv_bias": False, "image_size": (8, 24)},
        TIMM_CLASS | TIMM_NORM, {},
    ),
}  # fmt: skip


@torch.no_grad()
@pytest.mark.parametrize("case", TIMM)
def test_timms_vision_transformer(case: str) -> None:
    peer("timm")
    from timm.models.vision_transformer import VisionTransformer as Timm

    arguments, fields, names, block_names = TIMM[case]
    sizes = {"img_size": 16, "patch_size": 4, "embed_dim": 32, "depth": 2, "num_heads": 4, "mlp_ratio": 0.75}
    theirs = randomised(Timm(**sizes | {"num_classes": 5, "dynamic_img_size": True} | arguments))
    state, config = (
        theirs.state_dict(),
        tiny_config(**OURS | {"num_classes": 5, "position_resampling": "timm"} | fields),
    )
    leaves = {k: v for k, v in (pairs(TIMM_BLOCK) | block_names).items() if f"blocks.0.{v}" in state}
    present = {k: v for k, v in (TIMM_TOP | names).items() if v in state}
    assert not [v for v in names.values() if v not in state]
    model = ours(config, encoder(state, "blocks", leaves) | top(state, present))
    for size in (config.image_size, (24, 12)):
        assert difference(model(images(*size)), theirs(images(*size))) < (1e-10 if size == config.image_size else 2e-6)


@torch.no_grad()
def test_timms_hybrid() -> None:
    peer("timm")
    from timm.layers import StdConv2dSame
    from timm.models.resnetv2 import ResNetV2
    from timm.models.vision_transformer import VisionTransformer as Timm
    from timm.models.vision_transformer_hybrid import HybridEmbed

    backbone = ResNetV2(
        layers=(2, 1), channels=(128, 256), stem_chs=32, preact=False, stem_type="same", num_classes=0, global_pool="",
        conv_layer=partial(StdConv2dSame, eps=1e-8),
    )  # fmt: skip
    embed = partial(HybridEmbed, backbone=backbone, proj=True)
    theirs = randomised(Timm(
        img_size=(40, 32), patch_size=1, embed_dim=32, depth=2, num_heads=4, mlp_ratio=0.75, num_classes=5,
        embed_layer=embed,
    ))  # fmt: skip
    state = theirs.state_dict()
    weights = encoder(state, "blocks", pairs(TIMM_BLOCK)) | top(state, TIMM_TOP | TIMM_CLASS | TIMM_NORM)
    for name, value in state.items():
        path = name.removeprefix("patch_embed.backbone.")
        if path == name:
            continue
        path = path.replace("stem.conv", "root").replace("stem.norm", "root_norm").replace(".blocks.", ".")
        path = path.replace("downsample.conv", "conv_proj").replace("downsample.norm", "norm_proj")
        weights[f"stem.resnet.{path}"] = value
    config = tiny_hybrid(group_norm_eps=1e-5, standardization="var_plus", standardization_eps=1e-8)
    config = replace(config, image_size=(40, 32))
    assert difference(ours(config, weights)(images(40, 32)), theirs(images(40, 32))) < 1e-10


@torch.no_grad()
def test_torchvisions_vision_transformer() -> None:
    models = peer("torchvision").models
    sizes = {"patch_size": 4, "num_layers": 2, "num_heads": 4, "hidden_dim": 32, "mlp_dim": 24, "num_classes": 5}
    theirs = randomised(models.VisionTransformer(image_size=16, representation_size=7, **sizes))
    state = theirs.state_dict()
    block = pairs({
        "norm1": "ln_1", "norm2": "ln_2", "attn.proj": "self_attention.out_proj",
        "mlp.fc1": "mlp.0", "mlp.fc2": "mlp.3",
    })  # fmt: skip
    block |= {f"attn.qkv.{leaf}": f"self_attention.in_proj_{leaf}" for leaf in ("weight", "bias")}
    state |= {k.replace("encoder_layer_", ""): v for k, v in state.items()}
    weights = encoder(state, "encoder.layers", block) | top(state, {
        "tokens.class_token": "class_token", "tokens.position.table": "encoder.pos_embedding",
        "stem.proj.weight": "conv_proj.weight", "stem.proj.bias": "conv_proj.bias",
        "encoder.norm.weight": "encoder.ln.weight", "encoder.norm.bias": "encoder.ln.bias",
        "head.representation.weight": "heads.pre_logits.weight", "head.representation.bias": "heads.pre_logits.bias",
        "head.classifier.weight": "heads.head.weight", "head.classifier.bias": "heads.head.bias",
    })  # fmt: skip
    fields = OURS | {"num_classes": 5, "representation_size": 7, "position_resampling": "torchvision"}
    model = ours(tiny_config(**fields), weights)
    assert difference(model(images()), theirs(images())) < 1e-10

    larger = models.VisionTransformer(image_size=24, representation_size=7, **sizes).double().eval()
    resized = models.vision_transformer.interpolate_embeddings(24, 4, theirs.state_dict())
    larger.load_state_dict(resized)
    assert difference(model(images(24, 24)), larger(images(24, 24))) < 1e-10
