"""Does every engine give the model's answers, for every kind of model, and the same ones after it was saved?"""

from importlib import import_module

import numpy as np
import pytest
from families import FAMILIES, noise, outputs_for, tiny, truth

from vitrail.engines.base import HOMES, Job, Saveable, card_of
from vitrail.engines.fold import fold
from vitrail.errors import UsageError

RUNTIMES = {"openvino": "openvino", "onnxruntime": "onnxruntime", "torch": "torch"}
ENGINES = list(RUNTIMES)


def home(name):
    pytest.importorskip(RUNTIMES[name], reason="an engine of the extra `fast` that is not installed")
    return import_module(HOMES[name])


def build(name, model, **fields):
    job = Job(size=model.preprocess.size, **fields)
    return home(name).build(fold(model, job.size, job.outputs, job.depth), card_of(model), job)


def worst(outputs, expected, names):
    return max(float(np.abs(getattr(outputs, name) - expected[name].numpy()).max()) for name in names)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", ENGINES)
def test_exact_logits_are_the_models(name, family):
    model = tiny(family)
    pictures = noise(model)
    engine = build(name, model, batch=2, threads=2)
    assert worst(engine.run(pictures), truth(model, pictures), ("logits",)) < 1e-4


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", ENGINES)
def test_exact_features_and_logits_of_16_bit_pictures_are_the_models(name, family):
    model = tiny(family)
    pictures, outputs = noise(model, depth=16), outputs_for(model)
    engine = build(name, model, outputs=outputs, depth=16)
    assert worst(engine.run(pictures), truth(model, pictures), outputs) < 1e-4


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", ["openvino", "torch"])
def test_balanced_logits_are_near(name, family):
    model = tiny(family)
    pictures, expected = noise(model), truth(model, noise(model))
    engine = build(name, model, precision="balanced", outputs=outputs_for(model))
    assert worst(engine.run(pictures), expected, ("logits",)) < 0.03 * max(1.0, float(expected["logits"].abs().max()))


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("batch", [1, 2, 5])
def test_any_number_of_pictures_comes_back_in_order(name, batch):
    model = tiny("plain")
    engine = build(name, model, batch=batch, threads=2, outputs=("logits", "grid"))
    pictures = noise(model, 7)
    expected = truth(model, pictures)
    for count in (0, 1, 2, 7):
        outputs = engine.run(pictures[:count])
        assert outputs.logits.shape == (count, 7)
        assert outputs.grid.shape == (count, 4, 6, 32)
        assert np.allclose(outputs.logits, expected["logits"][:count], atol=1e-4)


@pytest.mark.parametrize("name", ENGINES)
def test_answers_belong_to_the_caller_and_do_not_change_with_the_next_run(name):
    model = tiny("plain")
    engine = build(name, model)
    first = engine.run(noise(model)).logits
    before = first.copy()
    engine.run(255 - noise(model))
    assert np.array_equal(first, before)


@pytest.mark.parametrize("precision", ["exact", "balanced"])
@pytest.mark.parametrize("name", ["openvino", "onnxruntime"])
def test_a_saved_graph_gives_the_same_answers_for_any_batch(name, precision, tmp_path):
    if (name, precision) == ("onnxruntime", "balanced"):
        pytest.skip("onnxruntime computes in float32")
    model = tiny("hybrid")
    engine = build(name, model, precision=precision)
    assert isinstance(engine, Saveable)
    engine.save(tmp_path)
    job = Job(size=model.preprocess.size, precision=precision, batch=4, threads=2)
    loaded = home(name).load(tmp_path, card_of(model), job)
    pictures = noise(model, 5)
    assert np.allclose(
        loaded.run(pictures).logits, engine.run(pictures).logits, atol=1e-6 if precision == "exact" else 1e-2
    )


@pytest.mark.parametrize("name", ENGINES)
def test_pictures_the_engine_was_not_made_for_are_refused(name):
    model = tiny("plain")
    engine = build(name, model)
    good = noise(model)
    for bad in (good[0], good[:, 1:], good.astype(np.uint16), good.astype(np.float32), good[..., :2]):
        with pytest.raises(UsageError, match="This engine takes uint8"):
            engine.run(bad)


def test_pictures_that_are_not_contiguous_are_read_right():
    model = tiny("plain")
    pictures = noise(model, 6)
    for name in ENGINES:
        engine = build(name, model, batch=3)
        assert np.allclose(engine.run(pictures[::-2]).logits, engine.run(pictures[::-2].copy()).logits)


def test_a_graph_for_onnx_is_a_valid_model_of_standard_operators(tmp_path):
    onnx = pytest.importorskip("onnx", reason="the extra `fast` is not installed")
    build("onnxruntime", tiny("hybrid")).save(tmp_path)
    onnx.checker.check_model(str(tmp_path / "graph.onnx"), full_check=True)
    assert {node.domain for node in onnx.load(tmp_path / "graph.onnx").graph.node} == {""}
