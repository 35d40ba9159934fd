"""Are big_vision's files read right? Built here by hand from published names, by numpy alone."""

import numpy as np
import pytest
import torch

from vitrail.checkpoint import container, load, save
from vitrail.config import replace
from vitrail.errors import CheckpointError

from .tiny import CONFIGS, picture, random_model

LINEN = {"LayerNorm_2": "LayerNorm_1", "MultiHeadDotProductAttention_1": "MultiHeadDotProductAttention_0"}
LINEN |= {"MlpBlock_3": "MlpBlock_0"}


@pytest.fixture
def published(tmp_path):
    """A model with tanh GELU, and its tensors under Google's published names as numpy arrays."""
    config = replace(CONFIGS["plain"], hidden_act="gelu_tanh", position_resampling="google")
    model = random_model(config)
    save(model, tmp_path / "published.npz", "google")
    with np.load(tmp_path / "published.npz") as file:
        return model, {key: file[key] for key in file.files}


def renamed(key):
    for old, new in LINEN.items():
        key = key.replace(old, new)
    return "params/" + key.replace("Transformer/posembed_input/pos_embedding", "pos_embedding")


def without_class_row(arrays):
    """The class token's position folded into the token: the same sum."""
    table = arrays["params/pos_embedding"]
    return arrays | {"params/cls": arrays["params/cls"] + table[:, :1], "params/pos_embedding": table[:, 1:]}


def stacked(arrays):
    """All layers in one array each, as `scan` leaves them."""
    start = "params/Transformer/encoderblock_"
    rest = {key: array for key, array in arrays.items() if not key.startswith(start)}
    names = {key.removeprefix(start).partition("/")[2] for key in arrays if key.startswith(start)}
    return rest | {
        f"params/Transformer/encoderblock/{name}": np.stack([arrays[f"{start}{i}/{name}"] for i in range(2)])
        for name in names
    }


@pytest.mark.parametrize("scanned", [False, True])
@pytest.mark.parametrize("class_row", [False, True])
def test_big_visions_names_are_the_same_model(published, scanned, class_row, tmp_path):
    model, arrays = published
    arrays = {renamed(key): array for key, array in arrays.items()}
    arrays = arrays if class_row else without_class_row(arrays)
    arrays = stacked(arrays) if scanned else arrays
    np.savez(tmp_path / "big_vision.npz", **arrays)
    again = load(tmp_path / "big_vision.npz")
    assert again.config.position_covers == ("class" if class_row else "patches")
    assert again.config.num_attention_heads == 3
    assert ("stacked layers" in again.origin.table) == scanned
    x = picture(model.config)
    assert torch.allclose(again(x), model(x), atol=2e-6)

    save(again, tmp_path / "back", "google")
    back = np.load(tmp_path / "back" / "model.npz")
    assert set(back.files) == set(arrays)
    assert all(np.array_equal(back[key], arrays[key]) for key in arrays)


def test_the_position_table_may_lie_in_the_encoder(published, tmp_path):
    """Where big_vision had it before 2022: vit.py, fix_old_checkpoints."""
    model, arrays = published
    arrays = {renamed(key): array for key, array in arrays.items()}
    arrays["params/Transformer/pos_embedding"] = arrays.pop("params/pos_embedding")
    np.savez(tmp_path / "old.npz", **arrays)
    again = load(tmp_path / "old.npz")
    assert torch.equal(again(picture(model.config)), model(picture(model.config)))
    save(again, tmp_path / "back.npz", "google")
    assert set(np.load(tmp_path / "back.npz").files) == set(arrays)


def test_what_an_optimizer_left_is_not_mistaken_for_the_model(published, tmp_path):
    """Both lie under `opt/`; only the model lies under `opt/target/`, and nothing there is passed over."""
    model, arrays = published
    arrays = {f"opt/target/{renamed(key).removeprefix('params/')}": array for key, array in arrays.items()}
    np.savez(tmp_path / "both.npz", **arrays, **{"opt/state/step": np.array(3), "opt/0/mu/head/bias": np.zeros(5)})
    again = load(tmp_path / "both.npz")
    assert again.origin.ignored == {"opt/state/step": "optimizer state", "opt/0/mu/head/bias": "optimizer state"}
    assert torch.equal(again(picture(model.config)), model(picture(model.config)))
    np.savez(tmp_path / "more.npz", **arrays, **{"opt/target/Transformer/adapter": np.zeros(5)})
    with pytest.raises(CheckpointError, match="adapter"):
        load(tmp_path / "more.npz")


def test_bfloat16_as_two_raw_bytes_is_read_exactly(published, tmp_path):
    model, arrays = published
    halves = {key: torch.from_numpy(array).bfloat16() for key, array in arrays.items()}
    raw = {key: half.view(torch.uint16).numpy().view("V2") for key, half in halves.items()}
    np.savez(tmp_path / "half.npz", **raw)
    again = load(tmp_path / "half.npz")
    assert again.origin.dtype == "bfloat16"
    assert again.state_dict()["stem.proj.bias"].dtype == torch.float32
    rounded = {key: tensor.bfloat16().float() for key, tensor in model.state_dict().items()}
    assert all(torch.equal(again.state_dict()[key], tensor) for key, tensor in rounded.items())


def test_group_norms_may_be_flat_or_of_four_axes(tmp_path):
    model = random_model(CONFIGS["hybrid"])
    save(model, tmp_path / "four.npz", "google")
    tensors = container.read(tmp_path / "four.npz").tensors
    assert tensors["block1/unit1/gn1/scale"].shape == (1, 1, 1, 32)
    flat = {key: tensor.flatten() if "gn" in key else tensor for key, tensor in tensors.items()}
    container.write_npz(tmp_path / "flat.npz", flat)
    (tmp_path / "flat.json").write_bytes((tmp_path / "four.json").read_bytes())
    again = load(tmp_path / "flat.npz")
    assert torch.equal(again(picture(model.config)), model(picture(model.config)))
    save(again, tmp_path / "back", "google")
    assert container.read(tmp_path / "back" / "model.npz").tensors["gn_root/scale"].shape == (32,)
