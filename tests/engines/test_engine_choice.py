"""Is the engine that is chosen one to trust, is the choice remembered rightly, and does a known model start light?"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from families import noise, tiny, truth

from vitrail.engines import choose, torch_engine, trial, trust
from vitrail.engines.base import HOMES, Job, card_of
from vitrail.engines.cache import Cache, default_cache, prune, stat_of
from vitrail.engines.choose import open_engine
from vitrail.engines.fold import fold
from vitrail.errors import EnvironmentProblem, UsageError

pytest.importorskip("openvino", reason="the extra `fast` is not installed")


@pytest.fixture(autouse=True)
def short_trials(monkeypatch):
    """The same trial, of fewer pictures."""
    monkeypatch.setattr(trial, "SAMPLES", 12)
    monkeypatch.setattr(trial, "SECONDS", 0.02)
    monkeypatch.setattr(trust, "SECONDS", 60.0)  # as many as asked for, also on a busy machine


@pytest.fixture
def cache(tmp_path) -> Cache:
    return Cache(tmp_path / "cache")


@pytest.fixture
def files(tmp_path) -> list[Path]:
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"what a loader would read")
    return [path]


def never() -> None:
    raise AssertionError("the model was loaded")


def test_auto_says_what_it_tried_and_answers_as_the_model(cache):
    model, lines = tiny("plain"), []
    engine = open_engine(model, precision="exact", cache=cache, say=lines.append)
    pictures = noise(model)
    assert np.abs(engine.run(pictures).logits - truth(model, pictures)["logits"].numpy()).max() < 1e-4
    for name in HOMES:
        assert any(line.startswith(f"{name}, exact") and "12 of 12 pictures" in line for line in lines), lines
    assert lines[-1].startswith(f"Engine: {engine.name}, exact (float32)")


def test_of_two_engines_the_quicker_now_is_kept_however_lucky_the_other_was_before():
    class Slow(torch_engine.TorchEngine):
        def run(self, pictures):
            time.sleep(0.05)
            return super().run(pictures)

    model = tiny("plain")
    job = Job(size=model.preprocess.size)
    quick = torch_engine.build(fold(model, job.size), card_of(model), job)
    slow = Slow(quick.model, quick.card, quick.job, quick.device)
    near = trust.agreement(quick, trust.reference(model, job, noise(model)))
    lucky, tried = trial.Tried(slow, near, rate=1e9), trial.Tried(quick, near)
    assert trial.quicker(tried, lucky, noise(model), print).engine is quick
    kept = trial.quicker(lucky, trial.Tried(quick, near, rate=1e-9), noise(model), print)
    assert kept.engine is quick
    assert kept.rate > 20


def test_a_known_file_opens_without_loading_the_model(cache, files):
    model = tiny("plain")
    first = open_engine(lambda: model, engine="openvino", files=files, cache=cache, batch=2)
    lines = []
    again = open_engine(never, engine="openvino", files=files, cache=cache, batch=2, say=lines.append)
    assert np.allclose(again.run(noise(model)).logits, first.run(noise(model)).logits, atol=1e-2)
    assert lines[0].endswith("Chosen before.")
    assert again.card == first.card


def test_a_file_that_changed_in_any_way_is_read_again(cache, files):
    open_engine(lambda: tiny("plain"), engine="openvino", files=files, cache=cache)
    state = files[0].stat()
    other = files[0].with_name("other")
    other.write_bytes(files[0].read_bytes())
    other.replace(files[0])
    os.utime(files[0], ns=(state.st_atime_ns, state.st_mtime_ns))  # the same size and the same time of change
    loaded = []
    open_engine(lambda: loaded.append(1) or tiny("gelu tanh"), engine="openvino", files=files, cache=cache)
    assert loaded


def test_other_weights_labels_sizes_and_outputs_are_other_engines(cache):
    model = tiny("plain")
    logits = open_engine(model, engine="openvino", precision="exact", cache=cache).run(noise(model)).logits
    with torch.no_grad():
        model.head.classifier.bias[0] += 1
    changed = open_engine(model, engine="openvino", precision="exact", cache=cache)
    assert np.allclose(changed.run(noise(model)).logits[:, 0], logits[:, 0] + 1, atol=1e-4)
    model.labels = ["a", *model.labels[1:]]
    assert open_engine(model, engine="openvino", precision="exact", cache=cache).card.labels[0] == "a"
    both = open_engine(model, engine="openvino", precision="exact", outputs=("logits", "grid"), cache=cache)
    assert both.run(noise(model)).grid is not None
    wide = open_engine(model, engine="openvino", precision="exact", size=(32, 64), cache=cache)
    assert wide.run(np.zeros((1, 32, 64, 3), np.uint8)).logits.shape == (1, 7)


DAMAGE = {
    "cut short": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    "half of it zeros": lambda content: bytes(len(content) // 2) + content[len(content) // 2 :],
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", ["openvino", "onnxruntime"])
def test_a_damaged_graph_is_noticed_and_made_again(cache, files, name, damage):
    model = tiny("plain")
    open_engine(lambda: model, engine=name, precision="exact", files=files, cache=cache)
    (graph,) = [path for path in (cache.root / "graphs").rglob("*") if path.suffix in (".blob", ".weights")]
    graph.write_bytes(DAMAGE[damage](graph.read_bytes()))
    engine = open_engine(lambda: model, engine=name, precision="exact", files=files, cache=cache)
    pictures = noise(model)
    assert np.abs(engine.run(pictures).logits - truth(model, pictures)["logits"].numpy()).max() < 1e-4


def test_an_engine_that_lies_is_not_used(cache, monkeypatch):
    from vitrail.engines import openvino_engine

    honest = openvino_engine.OpenVinoEngine.run

    def lying(self, pictures):
        outputs = honest(self, pictures)
        outputs.logits[:] = np.roll(outputs.logits, 1, axis=1)
        return outputs

    monkeypatch.setattr(openvino_engine.OpenVinoEngine, "run", lying)
    lines = []
    engine = open_engine(tiny("plain"), cache=cache, precision="exact", say=lines.append)
    assert engine.name != "openvino"
    assert any(line.startswith("openvino, exact: not used") for line in lines)


def test_an_engine_that_cannot_run_a_model_is_named_and_another_used(cache, monkeypatch):
    from vitrail.engines import openvino_engine

    def fails(*arguments):
        raise RuntimeError("Unsupported operation\nwith a long story")

    monkeypatch.setattr(openvino_engine, "build", fails)
    lines = []
    assert open_engine(tiny("plain"), cache=cache, precision="exact", say=lines.append).name != "openvino"
    assert "openvino: cannot run this model (Unsupported operation)." in lines


def test_without_the_extra_torch_does_it_and_asking_by_name_says_what_to_install(cache, monkeypatch):
    for module in ("openvino", "onnxruntime"):
        monkeypatch.setitem(sys.modules, module, None)
    lines = []
    engine = open_engine(tiny("plain"), cache=cache, precision="exact", say=lines.append)
    assert engine.name == "torch"
    assert sum("not here" in line for line in lines) == 2
    for name in ("openvino", "onnxruntime"):
        with pytest.raises(EnvironmentProblem, match=r"pip install 'vitrail\[fast\]'"):
            open_engine(tiny("plain"), engine=name, cache=cache, precision="exact")


def test_torch_as_a_remembered_choice_is_built_from_the_model(cache, files):
    model = tiny("plain")
    first = open_engine(lambda: model, engine="torch", precision="exact", files=files, cache=cache)
    again = open_engine(lambda: model, engine="torch", precision="exact", files=files, cache=cache)
    assert np.array_equal(again.run(noise(model)).logits, first.run(noise(model)).logits)


def test_balanced_is_left_for_exact_where_it_changes_answers(cache, monkeypatch):
    from vitrail.engines import trust

    monkeypatch.setattr(trial, "has_bfloat16", lambda: True)
    monkeypatch.setitem(trust.LEAST_COSINE, "balanced", 1.1)
    lines = []
    engine = open_engine(tiny("plain"), cache=cache, say=lines.append)
    assert engine.job.precision == "exact"
    assert any("balanced: not used" in line for line in lines)
    asked = open_engine(tiny("plain"), precision="balanced", cache=cache, say=lines.append)
    assert asked.job.precision == "balanced"  # asked for by name: measured, said, and done


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"engine": "openvin"}, "Did you mean openvino"),
        ({"precision": "exakt"}, "Did you mean exact"),
        ({"outputs": ("logit",)}, "Some of logits, token, mean, grid"),
        ({"outputs": ()}, "Some of logits"),
        ({"engine": "onnxruntime", "precision": "balanced"}, "computes in float32"),
        ({"batch": 0}, "1 or more"),
        ({"size": (33, 48)}, "does not divide"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(cache, wrong, says):
    with pytest.raises(UsageError, match=says):
        open_engine(tiny("plain"), cache=cache, **wrong)


LIGHT = """
import json, sys
from pathlib import Path
import numpy as np
from vitrail.engines.cache import Cache
from vitrail.engines.choose import open_engine
def never():
    raise AssertionError("the model was loaded")
engine = open_engine(never, engine={name!r}, precision="exact", files=[Path({file!r})], cache=Cache(Path({root!r})))
logits = engine.run(np.load({pictures!r})).logits
heavy = [name for name in ("torch", "PIL", "onnx", "openvino_telemetry") if name in sys.modules]
print(json.dumps([logits.tolist(), heavy]))
"""


@pytest.mark.parametrize("name", ["openvino", "onnxruntime"])
def test_a_known_model_answers_in_a_fresh_interpreter_that_never_imports_torch(cache, files, tmp_path, name):
    model = tiny("plain")
    expected = open_engine(lambda: model, engine=name, precision="exact", files=files, cache=cache).run(noise(model))
    np.save(tmp_path / "pictures.npy", noise(model))
    names = {"file": str(files[0]), "root": str(cache.root), "pictures": str(tmp_path / "pictures.npy")}
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", LIGHT.format(name=name, **names)], capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    logits, heavy = json.loads(ran.stdout)
    assert np.allclose(logits, expected.logits, atol=1e-5)
    assert heavy == []


def test_a_cache_that_cannot_be_written_costs_the_memory_and_nothing_else(tmp_path, files):
    (tmp_path / "file").write_text("not a folder")
    model, lines = tiny("plain"), []
    engine = open_engine(lambda: model, engine="openvino", cache=Cache(tmp_path / "file" / "x"), say=lines.append)
    assert engine.run(noise(model)).logits.shape == (3, 7)
    assert any("could not be kept" in line for line in lines)


def test_the_cache_is_where_the_user_says_and_only_the_users(monkeypatch, tmp_path):
    monkeypatch.setenv("VITRAIL_CACHE", str(tmp_path / "mine"))
    assert default_cache().root == tmp_path / "mine" / "engines"
    monkeypatch.delenv("VITRAIL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert default_cache().root == tmp_path / "xdg" / "vitrail" / "engines"
    (tmp_path / "xdg" / "vitrail" / "engines").chmod(0o777)  # anybody could put a graph there
    assert default_cache().root is None


def test_old_graphs_make_room_and_the_newest_stays(tmp_path):
    for age, name in enumerate(("new", "middle", "old")):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "graph").write_bytes(bytes(1000))
        os.utime(folder, (10_000 - age, 10_000 - age))
    prune(tmp_path, 2500)
    assert {path.name for path in tmp_path.iterdir()} == {"new", "middle"}
    prune(tmp_path, 10)
    assert {path.name for path in tmp_path.iterdir()} == {"new"}


def test_the_stat_of_files_does_not_depend_on_their_order(tmp_path):
    paths = [tmp_path / name for name in "ab"]
    for path in paths:
        path.write_text(path.name)
    assert stat_of(paths) == stat_of(paths[::-1])
    assert stat_of(paths) != stat_of(paths[:1])


def test_every_answer_a_graph_is_checked_with_depends_on_the_picture(cache):
    engine = open_engine(tiny("plain"), engine="openvino", precision="exact", cache=cache)
    blank = engine.run(np.zeros((1, *engine.job.size, 3), np.uint8)).logits
    assert np.abs(choose.answer(engine) - blank[0]).max() > 1e-3
