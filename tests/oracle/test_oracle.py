"""Is the oracle itself right? Once by hand, then against Google's own code."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from oracle.vit_numpy import How, bicubic_matrix, forward, resample

LN3 = math.log(3)
BLOCK = "Transformer/encoderblock_0"
MHA = f"{BLOCK}/MultiHeadDotProductAttention_1"


def two_tokens() -> dict[str, np.ndarray]:
    """One block, dim 2, one head of dimension 4, a one-pixel picture: a class token and a patch."""
    query, key, value = np.zeros((3, 2, 1, 4))
    query[0, 0, 0], key[0, 0, 0], value[0, 0, 1] = 1, LN3, 2
    out = np.zeros((1, 4, 2))
    out[0, 1] = 1, 1
    five_quarters = np.array([1.25, 1.25])
    return {
        "embedding/kernel": np.array([[[[3.0, -3.0]]]]),
        "embedding/bias": np.array([0.0, 1.0]),
        "cls": np.array([[[4.0, -4.0]]]),
        "Transformer/posembed_input/pos_embedding": np.array([[[1.0, 1.0], [-1.0, 0.0]]]),
        f"{BLOCK}/LayerNorm_0/scale": five_quarters,
        f"{BLOCK}/LayerNorm_0/bias": np.zeros(2),
        f"{MHA}/query/kernel": query,
        f"{MHA}/query/bias": np.zeros((1, 4)),
        f"{MHA}/key/kernel": key,
        f"{MHA}/key/bias": np.zeros((1, 4)),
        f"{MHA}/value/kernel": value,
        f"{MHA}/value/bias": np.array([[0.0, 1.0, 0.0, 0.0]]),
        f"{MHA}/out/kernel": out,
        f"{MHA}/out/bias": np.zeros(2),
        f"{BLOCK}/LayerNorm_2/scale": five_quarters,
        f"{BLOCK}/LayerNorm_2/bias": np.array([0.0, 2.0]),
        f"{BLOCK}/MlpBlock_3/Dense_0/kernel": np.array([[2.0], [-1.0]]),
        f"{BLOCK}/MlpBlock_3/Dense_0/bias": np.zeros(1),
        f"{BLOCK}/MlpBlock_3/Dense_1/kernel": np.array([[4.0, 0.0]]),
        f"{BLOCK}/MlpBlock_3/Dense_1/bias": np.zeros(2),
        "Transformer/encoder_norm/scale": np.ones(2),
        "Transformer/encoder_norm/bias": np.zeros(2),
        "head/kernel": np.array([[1.0, 10.0], [0.0, 0.0]]),
        "head/bias": np.array([0.5, -1.0]),
    }


def test_two_tokens_come_out_as_computed_by_hand() -> None:
    # With an epsilon of 9, (a, b) normalises to d / sqrt(d^2 + 9) and its negative, d = (a - b) / 2; d = 4 gives 0.8,
    # and the scale of 5/4 makes that 1.
    seen = forward(two_tokens(), np.full((1, 1, 1, 1), -1.0), How(activation="gelu", layer_norm_eps=9.0))

    # The patch: -1 * (3, -3) + (0, 1). Positions: (4, -4) + (1, 1) and (-3, 4) + (-1, 0).
    assert seen["patch_embed"].tolist() == [[[-3.0, 4.0]]]
    assert seen["embed"].tolist() == [[[5.0, -3.0], [-4.0, 4.0]]]
    # Normalised: (1, -1) and (-1, 1). Queries 1 and -1, keys ln 3 and -ln 3, over sqrt(4): scores +-(ln 3) / 2, so each
    # token gives itself three times the weight of the other.
    assert seen["attn_0"] == pytest.approx(np.array([[[[0.75, 0.25], [0.25, 0.75]]]]), abs=1e-15)
    # Values 2 * 1 + 1 = 3 and -1; gathered 0.75 * 3 - 0.25 = 2 and 0.25 * 3 - 0.75 = 0; residual (7, -1) and (-4, 4).
    # Normalised plus (0, 2): (1, 1) and (-1, 3). Hidden: 2 - 1 = 1 and -2 - 3 = -5, of which GELU leaves
    # Phi(1) = 0.8413447460685429 and -5 * Phi(-5) = -1.4332578593959695e-06; times (4, 0), added:
    expected = [[[10.365378984274171, -1.0], [-4.000005733031438, 4.0]]]
    assert seen["block_0"] == pytest.approx(np.array(expected), abs=1e-14)
    # d = 5.682689492137086, d^2 = 32.29295986404525, over sqrt(41.29295986404525): 0.8843331788116078.
    assert seen["pooled"] == pytest.approx(np.array([[0.8843331788116078, -0.8843331788116078]]), abs=1e-14)
    assert seen["logits"] == pytest.approx(np.array([[1.3843331788116078, 7.8433317881160781]]), abs=1e-14)


def test_googles_gelu_is_the_tanh_form() -> None:
    # At 1 it gives 0.841191990608276: d = 5.682383981216553, logits as above.
    logits = forward(two_tokens(), np.full((1, 1, 1, 1), -1.0), How(layer_norm_eps=9.0))["logits"]
    assert logits == pytest.approx(np.array([[1.3843228158803580, 7.8432281588035805]]), abs=1e-14)


def test_keys_kernel_halfway_between_cells() -> None:
    # a = -0.75 at distances 1.5, 0.5, 0.5, 1.5: -3/32, 19/32, 19/32, -3/32; edge cells stand in for what is outside.
    doubled = bicubic_matrix(4, 2, "hf")
    assert doubled[0] == pytest.approx([-3 / 32 + 19 / 32, 19 / 32, -3 / 32, 0])
    assert bicubic_matrix(3, 5, "torchvision")[1] == pytest.approx([19 / 32 - 3 / 32, 19 / 32, -3 / 32])


def golden(shared: Path, name: str) -> tuple[dict[str, np.ndarray], np.ndarray, dict[str, np.ndarray], dict]:
    folder = shared / "goldens" / name
    meta = json.loads((folder / "meta.json").read_text())
    return (
        dict(np.load(folder / "ckpt.npz")),
        np.load(folder / "input_nhwc.npy"),
        dict(np.load(folder / "expected.npz")),
        meta,
    )


@pytest.mark.upstream
@pytest.mark.parametrize("name", ["01_google_vit_b16like", "02_google_vit_in21k", "03_google_hybrid_r50"])
def test_the_oracle_is_googles_model(shared: Path, name: str) -> None:
    weights, images, expected, _ = golden(shared, name)
    seen = forward(weights, images)
    assert np.abs(seen["logits"] - expected["logits_f64"]).max() < 1e-12
    assert np.abs(seen["logits"] - expected["logits"]).max() < (5e-5 if "hybrid" in name else 3e-5)
    compared = [key for key in expected if key in seen]
    assert len(compared) >= 9
    for key in compared:
        assert np.abs(seen[key] - expected[key]).max() < 1e-4, key


@pytest.mark.upstream
@pytest.mark.parametrize("pixels", [48, 80, 96])
def test_the_oracle_reads_a_picture_of_another_size_as_google_does(shared: Path, pixels: int) -> None:
    folder = shared / "goldens" / "10_posembed_interp"
    expected = np.load(folder / "expected_google.npz")
    images = np.load(folder / f"input_{pixels}.npy").transpose(0, 2, 3, 1)
    seen = forward(dict(np.load(folder / "ckpt.npz")), images, How(table_grid=(4, 4), resampling="google"))
    assert np.abs(seen["embed"] - expected[f"google_embed_{pixels}"]).max() < 1e-5
    assert np.abs(seen["logits"] - expected[f"google_logits_{pixels}"]).max() < 3e-5


@pytest.mark.upstream
@pytest.mark.parametrize(
    ("method", "key", "old", "new"),
    [
        ("hf", "hf_interp_96x96", (4, 4), (6, 6)),
        ("hf", "hf_interp_48x48", (4, 4), (3, 3)),
        ("hf", "hf_interp_96x64", (4, 4), (6, 4)),
        ("hf", "hf_interp_48x80", (4, 4), (3, 5)),
        ("hf", "timm_resample_noaa_2x8", (4, 4), (2, 8)),
        ("timm", "timm_resample_6x6", (4, 4), (6, 6)),
        ("timm", "timm_resample_3x3", (4, 4), (3, 3)),
        ("timm", "timm_resample_6x4", (4, 4), (6, 4)),
        ("timm", "timm_resample_3x5", (4, 4), (3, 5)),
        ("timm", "timm_resample_2x8", (4, 4), (2, 8)),
        ("timm", "timm_resample_old2x8_new3x5", (2, 8), (3, 5)),
        ("torchvision", "torchvision_bicubic_aligned_96", (4, 4), (6, 6)),
        ("torchvision", "torchvision_bicubic_aligned_48", (4, 4), (3, 3)),
    ],
)
def test_the_oracle_stretches_positions_as_each_library_does(
    shared: Path, method: str, key: str, old: tuple[int, int], new: tuple[int, int]
) -> None:
    expected = np.load(shared / "goldens" / "10_posembed_interp" / "expected_torch.npz")
    table = expected["table"][0, 1:].reshape(*old, -1)
    assert np.abs(resample(table, new, method).reshape(-1, 64) - expected[key][0, 1:]).max() < 3e-6
