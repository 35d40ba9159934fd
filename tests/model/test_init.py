"""Do fresh weights start as they do in the library whose name the flavour bears?

One table of expectations, written from the libraries' sources; our weights are held against it here, and the
libraries' own in the tests marked `upstream`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pytest
import torch
from oracle.peers import peer
from torch import Tensor

from vitrail.config import ResNetStem, ViTConfig, build, literal_values
from vitrail.model.vit import VisionTransformer, create

DIM, MLP, CLASSES, REP = 192, 768, 10, 96
SIZES: dict[str, Any] = {
    "image_size": 32, "patch_size": 8, "hidden_size": DIM, "num_hidden_layers": 2, "num_attention_heads": 3,
    "intermediate_size": MLP, "num_classes": CLASSES,
}  # fmt: skip
PATCH_FAN_IN = 3 * 8 * 8
CUT = 0.87962566103423978  # standard deviation of a unit normal cut at two sigma

Check = Callable[[Tensor], bool]


def constant(value: float) -> Check:
    return lambda t: torch.allclose(t, torch.full_like(t, value))


def normal(std: float) -> Check:
    """A whole bell: the standard deviation, and (given enough numbers) tails beyond 2.6 of it."""
    return lambda t: spread(t, std) and (t.numel() < 3000 or 2.6 * std < t.abs().max() < 7 * std)


def cut_normal(std: float) -> Check:
    """A bell cut at two sigma and widened to `std`, flax's and TensorFlow's truncated normal."""
    return lambda t: spread(t, std) and t.abs().max() <= 2 * std / CUT + 1e-9


def uniform(bound: float) -> Check:
    return lambda t: spread(t, bound / math.sqrt(3)) and bound * (1 - 40 / t.numel()) < t.abs().max() <= bound + 1e-9


def spread(t: Tensor, std: float) -> bool:
    """Mean and standard deviation within five of their standard errors."""
    n = t.numel()
    return bool(abs(t.mean()) < 5 * std / n**0.5 and abs(t.std() - std) < 5 * std / (2 * n) ** 0.5)


ZERO, ONE, TINY = constant(0.0), constant(1.0), normal(1e-6)
XAVIER, XAVIER_MLP = uniform(math.sqrt(6 / (2 * DIM))), uniform(math.sqrt(6 / (DIM + MLP)))
XAVIER_FUSED = uniform(math.sqrt(6 / (DIM + 3 * DIM)))
LINEAR_DEFAULT = uniform(math.sqrt(1 / DIM))  # what torch gives nn.Linear and nn.Conv2d
LECUN = cut_normal(math.sqrt(1 / DIM))  # patches have 3 * 8 * 8 = 192 inputs too
N02 = normal(0.02)  # "trunc_normal_(std=.02)" in torch cuts at +-2, a hundred sigma away: a whole bell

EVERYWHERE: dict[str, Check] = {"norm.weight": ONE, "norm.bias": ZERO, "qk_norm.weight": ONE, "scale": constant(0.1)}
NO_BIAS = dict.fromkeys(("qkv.bias", "proj.bias", "fc1.bias", "fc2.bias", "classifier.bias"), ZERO)
MLP_BIAS = {"fc1.bias": TINY, "fc2.bias": TINY}
XAVIERS = {"qkv.weight": XAVIER, "proj.weight": XAVIER, "fc1.weight": XAVIER_MLP, "fc2.weight": XAVIER_MLP}
ALL_02 = {f"{name}.weight": N02 for name in ("patch", "qkv", "proj", "fc1", "fc2", "classifier")}
TIMM_TOKENS = {"position": N02, "class": TINY, "registers": TINY}

EXPECTED: dict[str, dict[str, Check]] = {
    "google": {
        **EVERYWHERE, **NO_BIAS, **XAVIERS, **MLP_BIAS, "patch.weight": LECUN, "patch.bias": ZERO, "position": N02,
        "class": ZERO, "registers": ZERO, "representation.weight": LECUN, "representation.bias": ZERO,
        "classifier.weight": ZERO, "map.qkv": XAVIER, "map.fc1.bias": TINY,
        "map.query": uniform(math.sqrt(6 / (1 + DIM))),
    },
    "big_vision": {
        **EVERYWHERE, **NO_BIAS, **XAVIERS, **MLP_BIAS, "patch.weight": LECUN, "patch.bias": ZERO,
        "position": normal(DIM**-0.5), "class": ZERO, "registers": ZERO, "representation.weight": LECUN,
        "classifier.weight": ZERO, "classifier.bias": constant(-10.0), "map.query": uniform(math.sqrt(6 / (1 + DIM))),
    },
    "hf": {
        **EVERYWHERE, **NO_BIAS, **ALL_02, "patch.bias": ZERO, "position": N02, "class": N02,
        "representation.weight": N02,
    },
    "timm": {
        **EVERYWHERE, **NO_BIAS, **ALL_02, **TIMM_TOKENS, "patch.weight": LINEAR_DEFAULT, "patch.bias": LINEAR_DEFAULT,
        "map.query": cut_normal(CUT * DIM**-0.5), "map.qkv": N02,
    },
    "timm_jax": {
        **EVERYWHERE, **NO_BIAS, **XAVIERS, **MLP_BIAS, **TIMM_TOKENS, "qkv.weight": XAVIER_FUSED,
        "patch.weight": LECUN, "patch.bias": ZERO, "classifier.weight": ZERO,
    },
    "timm_jax_nlhb": {
        **EVERYWHERE, **NO_BIAS, **XAVIERS, **MLP_BIAS, **TIMM_TOKENS, "qkv.weight": XAVIER_FUSED,
        "patch.weight": LECUN, "patch.bias": ZERO, "classifier.weight": ZERO,
        "classifier.bias": constant(-math.log(CLASSES)),
    },
    "moco": {
        **EVERYWHERE, **NO_BIAS, **XAVIERS, **TIMM_TOKENS, "patch.weight": LINEAR_DEFAULT, "patch.bias": LINEAR_DEFAULT,
        "classifier.weight": uniform(math.sqrt(6 / (DIM + CLASSES))),
    },
    "torchvision": {
        **EVERYWHERE, **NO_BIAS, **XAVIERS, **MLP_BIAS, "qkv.weight": XAVIER_FUSED, "proj.weight": LINEAR_DEFAULT,
        "patch.weight": normal(math.sqrt(1 / PATCH_FAN_IN)), "patch.bias": ZERO, "position": N02, "class": ZERO,
        "representation.weight": normal(math.sqrt(1 / DIM)), "representation.bias": ZERO, "classifier.weight": ZERO,
    },
}  # fmt: skip

WHERE = {
    "patch": "stem.proj", "qkv": "encoder.blocks.1.attn.qkv", "proj": "encoder.blocks.1.attn.proj",
    "fc1": "encoder.blocks.1.mlp.fc1", "fc2": "encoder.blocks.1.mlp.fc2", "norm": "encoder.blocks.1.norm2",
    "qk_norm": "encoder.blocks.1.attn.q_norm", "classifier": "head.classifier", "representation": "head.representation",
    "position": "tokens.position.table", "class": "tokens.class_token", "registers": "tokens.register_tokens",
    "scale": "encoder.blocks.1.scale1", "map.query": "head.pool.query", "map.qkv": "head.pool.qkv.weight",
    "map.fc1": "head.pool.mlp.fc1",
}  # fmt: skip


@lru_cache(maxsize=8)
def fresh(flavour: str, **changes: Any) -> VisionTransformer:
    return create(build(ViTConfig, SIZES | {"initializer": flavour} | changes), seed=0)


def in_role(flavour: str, role: str) -> Tensor:
    """The parameter that plays a role, from the smallest model that has it."""
    place, _, leaf = role.rpartition(".")
    name = WHERE[role] if role in WHERE else f"{WHERE[place]}.{leaf}"
    if role.startswith("map"):
        changes: dict[str, Any] = {"pooling": "map"}
    elif role.startswith("representation"):
        changes = {"representation_size": REP}
    else:
        changes = {"num_register_tokens": 4, "qk_norm": True, "layer_scale": 0.1}
    return dict(fresh(flavour, **changes).named_parameters())[name].detach()


CASES = [(flavour, role) for flavour, roles in EXPECTED.items() for role in roles]


@pytest.mark.parametrize(("flavour", "role"), CASES)
def test_a_fresh_parameter_starts_as_its_flavour_says(flavour: str, role: str, request: pytest.FixtureRequest) -> None:
    value = in_role(flavour, role)
    parts = value.chunk(3) if "qkv" in role else [value]
    assert all(EXPECTED[flavour][role](part) for part in parts)


def test_every_flavour_is_expected() -> None:
    assert set(EXPECTED) == set(literal_values(ViTConfig, "initializer"))


def test_hugging_faces_range_is_respected() -> None:
    model = fresh("hf", initializer_range=0.1)
    assert normal(0.1)(model.encoder.blocks[0].attn.qkv.weight.detach())


STEM = build(ResNetStem, {"layers": (2, 1), "width": 64})


@pytest.mark.parametrize("flavour", EXPECTED)
def test_each_residual_branch_of_the_stem_starts_silent(flavour: str) -> None:
    resnet = fresh(flavour, resnet=STEM, patch_size=1).stem.resnet
    for unit in (unit for stage in resnet.stages for unit in stage):
        assert constant(0.0)(unit.norm3.weight.detach())
        assert constant(1.0)(unit.norm2.weight.detach())
    assert constant(1.0)(resnet.stages[0][0].norm_proj.weight.detach())


@pytest.mark.parametrize("flavour", ["google", "big_vision"])
def test_googles_stem_kernels_are_lecun_normal(flavour: str) -> None:
    unit = fresh(flavour, resnet=STEM, patch_size=1).stem.resnet.stages[0][1]
    assert cut_normal(math.sqrt(1 / 64 / 9))(unit.conv2.weight.detach())
    assert cut_normal(math.sqrt(1 / 256))(unit.conv1.weight.detach())


@pytest.mark.parametrize("flavour", ["timm", "moco", "timm_jax", "timm_jax_nlhb"])
def test_timms_stem_kernels_are_kaiming_normal(flavour: str) -> None:
    unit = fresh(flavour, resnet=STEM, patch_size=1).stem.resnet.stages[0][1]
    assert normal(math.sqrt(2 / 64 / 9))(unit.conv2.weight.detach())


def test_the_same_seed_gives_the_same_weights_and_another_seed_others() -> None:
    config = build(ViTConfig, SIZES | {"initializer": "timm"})
    first, again, other = (dict(create(config, seed).named_parameters()) for seed in (3, 3, 4))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["stem.proj.weight"], other["stem.proj.weight"])


@pytest.mark.parametrize("flavour", EXPECTED)
def test_a_fresh_model_of_every_flavour_gives_finite_features(flavour: str) -> None:
    model = fresh(flavour, num_register_tokens=2, layer_scale=1e-5)
    with torch.no_grad():
        features = model.features(torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0)))
    assert features.isfinite().all()
    assert features.std() > 0.1


# Against the libraries ---------------------------------------------------------------------------------------------


def assert_as_expected(flavour: str, roles: dict[str, Tensor]) -> None:
    wrong = [role for role, value in roles.items() if not EXPECTED[flavour][role](value.detach())]
    assert wrong == []


@pytest.mark.upstream
@pytest.mark.parametrize("flavour", ["timm", "timm_jax", "timm_jax_nlhb", "moco"])
def test_the_table_is_timms(flavour: str) -> None:
    peer("timm")
    from timm.models.vision_transformer import VisionTransformer as Timm

    torch.manual_seed(0)
    model = Timm(
        img_size=32, patch_size=8, embed_dim=DIM, depth=2, num_heads=3, num_classes=CLASSES, reg_tokens=4,
        qk_norm=True, init_values=0.1, weight_init=flavour.removeprefix("timm").strip("_"),
    )  # fmt: skip
    block = model.blocks[1]
    modules = {
        "patch": model.patch_embed.proj, "qkv": block.attn.qkv, "proj": block.attn.proj, "fc1": block.mlp.fc1,
        "fc2": block.mlp.fc2, "classifier": model.head, "norm": block.norm2,
    }  # fmt: skip
    roles = both(modules) | {"position": model.pos_embed, "class": model.cls_token, "registers": model.reg_token}
    assert_as_expected(flavour, roles | {"scale": block.ls1.gamma, "qk_norm.weight": block.attn.q_norm.weight})


@pytest.mark.upstream
def test_the_table_is_timms_for_attention_pooling() -> None:
    peer("timm")
    from timm.models.vision_transformer import VisionTransformer as Timm

    torch.manual_seed(0)
    pool = Timm(img_size=32, patch_size=8, embed_dim=DIM, depth=1, num_heads=3, global_pool="map").attn_pool
    assert_as_expected("timm", {"map.query": pool.latent, "map.qkv": torch.cat([pool.q.weight, pool.kv.weight])})


@pytest.mark.upstream
def test_timms_hybrid_stem_starts_at_kaiming_normal() -> None:
    timm = peer("timm")
    torch.manual_seed(0)
    for mode in ("", "jax", "jax_nlhb", "moco"):
        stem = timm.create_model("vit_small_r26_s32_224", depth=1, weight_init=mode).patch_embed.backbone
        unit = stem.stages[0].blocks[1]
        assert normal(math.sqrt(2 / 64 / 9))(unit.conv2.weight.detach())
        assert constant(0.0)(unit.norm3.weight.detach())


@pytest.mark.upstream
def test_the_table_is_torchvisions() -> None:
    models = peer("torchvision").models
    torch.manual_seed(0)
    model = models.VisionTransformer(
        image_size=32, patch_size=8, num_layers=2, num_heads=3, hidden_dim=DIM, mlp_dim=MLP, num_classes=CLASSES,
        representation_size=REP,
    )  # fmt: skip
    layer = model.encoder.layers[1]
    modules = {
        "patch": model.conv_proj, "proj": layer.self_attention.out_proj, "fc1": layer.mlp[0], "fc2": layer.mlp[3],
        "classifier": model.heads.head, "norm": layer.ln_2, "representation": model.heads.pre_logits,
    }  # fmt: skip
    roles = {"position": model.encoder.pos_embedding, "class": model.class_token}
    roles |= {"qkv.weight": layer.self_attention.in_proj_weight, "qkv.bias": layer.self_attention.in_proj_bias}
    assert_as_expected("torchvision", both(modules) | roles)


@pytest.mark.upstream
def test_the_table_is_hugging_faces() -> None:
    transformers = peer("transformers")
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        image_size=32, patch_size=8, hidden_size=DIM, num_hidden_layers=2, num_attention_heads=3, intermediate_size=MLP,
        num_labels=CLASSES,
    )  # fmt: skip
    model = transformers.ViTForImageClassification(config)
    block = model.vit.layers[1]
    modules = {
        "patch": model.vit.embeddings.patch_embeddings.projection, "qkv": block.attention.q_proj,
        "proj": block.attention.o_proj, "fc1": block.mlp.fc1, "fc2": block.mlp.fc2, "classifier": model.classifier,
        "norm": block.layernorm_after, "representation": transformers.ViTModel(config).pooler.dense,
    }  # fmt: skip
    tokens = {"position": model.vit.embeddings.position_embeddings, "class": model.vit.embeddings.cls_token}
    roles = {role: value for role, value in (both(modules) | tokens).items() if role in EXPECTED["hf"]}
    assert_as_expected("hf", roles)


def both(modules: dict[str, torch.nn.Module]) -> dict[str, Tensor]:
    return {f"{name}.{leaf}": getattr(module, leaf) for name, module in modules.items() for leaf in ("weight", "bias")}
