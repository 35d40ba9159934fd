"""Does a peer's own checkpoint, loaded here, compute what that peer computed from it?"""

import json

import numpy as np
import pytest
import torch

from vitrail.checkpoint import convert, load, save
from vitrail.checkpoint.capacity import lacking
from vitrail.errors import CheckpointError
from vitrail.model.probe import Probe

pytestmark = pytest.mark.upstream

HEADS = {"num_attention_heads": 4}  # a bare file of a fused query-key-value weight cannot say
PICKLE = HEADS | {"from_pickle": True}
GOLDENS = {
    "01_google_vit_b16like/ckpt.npz": {},
    "01_google_vit_b16like/ckpt_linen.npz": {},
    "02_google_vit_in21k/ckpt.npz": {},
    "03_google_hybrid_r50/ckpt.npz": {},
    "04_hf_vit_classifier/hf": {},
    "05_hf_vit_model_pooler/hf": {},
    "06_timm_vit/model.safetensors": HEADS,
    "07_timm_hybrid/model.safetensors": HEADS,
    "08_torchvision_vit/model.pth": PICKLE,
    "09_deit_distilled/model.pth": PICKLE,
}


@pytest.fixture(scope="module", params=GOLDENS)
def golden(request, shared):
    """A loaded golden, every named intermediate it computes, and what the peer computed."""
    folder = shared / "goldens" / request.param.split("/")[0]
    model = load(shared / "goldens" / request.param, **GOLDENS[request.param])
    probe = Probe("*")
    images = torch.from_numpy(np.load(folder / "input.npy"))
    with torch.no_grad():
        logits = model(images, probe)
        features = model.features(images)
    return (
        model,
        logits,
        features,
        probe,
        np.load(folder / "expected.npz"),
        json.loads((folder / "meta.json").read_text()),
    )


def off(ours, theirs):
    return np.abs(ours.numpy() - theirs).max()


def test_the_output_agrees(golden):
    model, logits, features, _, expected, _ = golden
    tolerance = 5e-5 if model.config.resnet else 3e-5
    assert off(logits, expected["logits" if "logits" in expected else "pooler_output"]) < tolerance
    if "last_hidden_state" in expected:
        assert off(features, expected["last_hidden_state"]) < 1e-4


def test_every_intermediate_agrees(golden):
    model, _, _, probe, expected, meta = golden
    names = {
        "embed": "tokens.out",
        "norm": "norm.out",
        "patch_embed": "tokens.patches",
        "pre_logits": "head.representation",
    }
    names |= {"pooled": "head.pooled", "stem_pool": "stem.pool"}
    names |= {f"block_{i}": f"blocks.{i}.out" for i in range(model.config.num_hidden_layers)}
    names |= {f"attn_{i}": f"blocks.{i}.attn.weights" for i in range(model.config.num_hidden_layers)}
    names |= {f"stem_block{s + 1}": f"stem.stages.{s}" for s in range(3)}
    checked = [name for name in names if name in expected]
    assert len(checked) >= 2 * model.config.num_hidden_layers + 2
    for name in checked:
        ours, theirs = probe[names[name]], expected[name]
        if meta["kind"] == "vit_jax" and theirs.ndim == 4 and name.startswith("stem"):
            theirs = theirs.transpose(0, 3, 1, 2)
        if name == "pre_logits" and model.config.distillation_token:  # timm's is the mean of both tokens
            continue
        assert off(ours, theirs) < 1e-4, name


def test_the_dinov2_architecture_agrees_at_full_size(shared):
    folder = shared / "weights" / "vit-small-14-dinov2-arch"
    model = load(folder)
    expected = np.load(folder / "expected_coco39769.npz")
    probe = Probe("blocks.0.out", "blocks.6.out")
    with torch.no_grad():
        features = model.features(torch.from_numpy(expected["pixel_values"]), probe=probe)
    assert model.origin.dtype == "float16"
    assert model.preprocess.resize == 256
    assert model.config.image_size == (518, 518)
    scale = np.abs(expected["last_hidden_state"]).max()
    assert off(features, expected["last_hidden_state"]) < 1e-5 * scale
    for index in (0, 6):
        theirs = expected[f"block_{index}"]
        assert off(probe[f"blocks.{index}.out"], theirs) < 1e-5 * np.abs(theirs).max()


@pytest.mark.parametrize("name", GOLDENS)
@pytest.mark.parametrize("to", ["native", "google", "timm", "torchvision", "jeonsworld"])
def test_a_golden_goes_through_every_format_and_back_bit_for_bit(name, to, shared, tmp_path):
    source, options = shared / "goldens" / name, GOLDENS[name]
    theirs = load(source, **options)
    if to != "native" and lacking(theirs.config, to):
        with pytest.raises(CheckpointError, match="has no place for"):
            save(theirs, tmp_path / "there", to)
        return
    report = convert(source, tmp_path / "there", to, **options)
    assert report.tensors_equal
    assert report.tensors_compared > 30
    assert max(report.logits_difference.values()) == 0
    convert(tmp_path / "there", tmp_path / "back", theirs.origin.origin)
    mine = load(tmp_path / "back").state_dict()
    assert all(torch.equal(mine[key], tensor) for key, tensor in theirs.state_dict().items())


def test_other_resolutions_agree_with_each_origin(shared):
    folder = shared / "goldens" / "10_posembed_interp"
    google, torch_side = np.load(folder / "expected_google.npz"), np.load(folder / "expected_torch.npz")
    for size in (96, 48, 80):
        model = load(folder / "ckpt.npz", image_size=size)
        assert off(model.state_dict()["tokens.position.table"], google[f"google_zoom_{size}"]) < 1e-7
        images = torch.from_numpy(np.load(folder / f"input_{size}.npy"))
        assert off(model(images).detach(), google[f"google_logits_{size}"]) < 3e-5
    for rows, cols in ((96, 96), (48, 48), (96, 64), (48, 80), (64, 64), (32, 128)):
        model, name = load(folder / "hf", image_size=(rows, cols)), f"{rows}x{cols}"
        assert off(model.state_dict()["tokens.position.table"], torch_side[f"hf_interp_{name}"]) == 0
        if f"hf_logits_{name}" in torch_side:
            images = torch.from_numpy(np.load(folder / f"input_hf_{name}.npy"))
            assert off(model(images).detach(), torch_side[f"hf_logits_{name}"]) < 3e-5
    for method, size, name in (("timm", 96, "timm_resample_6x6"), ("timm", 48, "timm_resample_3x3"),
                               ("torchvision", 96, "torchvision_bicubic_aligned_96")):  # fmt: skip
        model = load(folder / "hf", image_size=size, position_resampling=method)
        assert off(model.state_dict()["tokens.position.table"], torch_side[name]) == 0
