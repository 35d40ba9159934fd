"""Is the folded model the same function, for every kind of model?"""

import numpy as np
import pytest
import torch
from families import FAMILIES, noise, outputs_for, tiny, truth

from vitrail.config import replace
from vitrail.engines import folded as f
from vitrail.engines.fold import fold
from vitrail.engines.graph import run
from vitrail.engines.torch_ops import TorchOps
from vitrail.errors import UsageError


def evaluate(model, pictures, outputs, dtype, depth=8):
    """The folded model run by torch in one precision."""
    folded = fold(model, model.preprocess.size, outputs, depth, np.dtype(str(dtype).removeprefix("torch.")))
    tensors = f.mapped(folded, torch.from_numpy)
    with torch.inference_mode():
        return run(TorchOps(dtype), tensors, torch.from_numpy(pictures), outputs)


def worst(got, expected):
    return max(float((got[name] - expected[name].reshape(got[name].shape)).abs().max()) for name in got)


@pytest.mark.parametrize("depth", [8, 16])
@pytest.mark.parametrize("family", FAMILIES)
def test_folded_logits_are_the_models_to_1e_10_in_float64(family, depth):
    model = tiny(family).double()
    pictures = noise(model, depth=depth)
    assert worst(evaluate(model, pictures, ("logits",), torch.float64, depth), truth(model, pictures)) < 1e-10


@pytest.mark.parametrize("family", FAMILIES)
def test_folded_features_are_the_models_to_1e_10_in_float64(family):
    model = tiny(family).double()
    pictures, outputs = noise(model), outputs_for(model)
    assert worst(evaluate(model, pictures, outputs, torch.float64), truth(model, pictures)) < 1e-10


@pytest.mark.parametrize("family", FAMILIES)
def test_folded_float32_is_the_float64_model_to_1e_5(family):
    model = tiny(family).double()
    pictures = noise(model)
    got = evaluate(model, pictures, ("logits",), torch.float32)
    assert worst(got, truth(model, pictures)) < 1e-5 * max(1.0, float(truth(model, pictures)["logits"].abs().max()))


def test_the_token_alone_is_the_token_of_all_features():
    model = tiny("mean").double()  # its head reads all tokens, so only the output decides what the last block computes
    pictures = noise(model)
    assert fold(model, outputs=("token",)).blocks[-1].keep == 1
    assert worst(evaluate(model, pictures, ("token",), torch.float64), truth(model, pictures)) < 1e-10


def test_another_picture_size_resamples_the_positions_as_the_model_does():
    model = tiny("plain").double()
    model.preprocess = replace(model.preprocess, size=(48, 32), resize=(48, 32))
    pictures = noise(model)
    assert worst(evaluate(model, pictures, ("logits",), torch.float64), truth(model, pictures)) < 1e-10


def test_preprocessing_of_the_model_is_what_is_folded():
    model = tiny("plain").double()
    model.preprocess = replace(model.preprocess, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    pictures = noise(model)
    assert worst(evaluate(model, pictures, ("logits",), torch.float64), truth(model, pictures)) < 1e-10


def test_for_logits_the_last_block_multiplies_no_token_by_keys_or_values():
    last = fold(tiny("plain")).blocks[-1]
    assert isinstance(last.attention, f.Gather)
    assert last.keep == 1
    assert isinstance(fold(tiny("plain"), outputs=("logits", "grid")).blocks[-1].attention, f.Attention)


@pytest.mark.parametrize("family", ["qk norm", "rotary"])
def test_keys_that_are_not_linear_in_the_token_are_computed(family):
    last = fold(tiny(family)).blocks[-1]
    assert isinstance(last.attention, f.Attention)
    assert last.keep == 1


def test_pixels_meet_an_integer_that_bfloat16_holds_exactly():
    model = tiny("plain")
    model.preprocess = replace(model.preprocess, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    centre = fold(model).stem.centre
    assert (centre == np.rint(centre)).all()
    everything = torch.arange(256)[:, None] - torch.from_numpy(centre)
    assert (everything.bfloat16().float() == everything).all()


def test_folding_leaves_the_model_as_it_was():
    model = tiny("layer scale")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    fold(model)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def test_a_model_without_a_class_token_has_no_token_to_give():
    with pytest.raises(UsageError, match="no class token"):
        fold(tiny("map"), outputs=("token",))
