"""Does the verb measure what the model really says, of the right pictures, and lose none?"""

import hashlib

import numpy as np
import pytest
import torch
from evaluate.conftest import LABELS, coloured, put
from sklearn import metrics as peer

import vitrail
from vitrail.config import ViTConfig
from vitrail.errors import DataError, UsageError
from vitrail.images.decode import decode
from vitrail.images.transforms import normalise, transform
from vitrail.model.vit import create

EXACT = {"engine": "torch", "precision": "exact", "draws": 50}


def tree(folder):
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return [(path, path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest()) for path in files]


def own_logits(model, paths):
    """The model's answers without engines, loaders or batches."""
    logits = []
    for path in paths:
        pixels = transform(decode(str(path)).pixels, model.preprocess)
        with torch.no_grad():
            logits.append(model(normalise(pixels[None], model.preprocess))[0].numpy())
    return np.stack(logits)


def test_every_file_is_a_row_and_the_measures_are_scikit_learns_of_the_models_own_answers(model, data):
    before = tree(data)
    result = vitrail.evaluate(model, data, **EXACT)
    assert [row.path for row in result.rows] == [str(path) for path in sorted(data.rglob("*")) if path.is_file()]
    assert {row.path.split("/")[-1]: row.error.partition(":")[0] for row in result.bad} == {
        "broken.jpg": "corrupt",
        "empty.png": "empty",
    }
    logits = own_logits(model, [row.path for row in result.good])
    label = [LABELS.index(row.path.split("/")[-2]) for row in result.good]
    chances = torch.softmax(torch.from_numpy(logits).double(), 1).numpy()
    expected = {
        "top1": peer.accuracy_score(label, logits.argmax(1)),
        "f1_macro": peer.f1_score(label, logits.argmax(1), average="macro"),
        "auroc_macro": peer.roc_auc_score(label, chances, multi_class="ovr"),
        "nll": peer.log_loss(label, chances),
    }
    assert {name: result[name] for name in expected} == pytest.approx(expected, abs=1e-5)
    assert 0.6 < result["top1"] < 1  # a test on answers that are all right, or random, would show little
    assert result.metrics.pictures == 31
    assert tree(data) == before


def test_a_name_an_engine_and_the_model_itself_agree(model, checkpoint, data):
    by_model = vitrail.evaluate(model, data, **EXACT)
    by_name = vitrail.evaluate(checkpoint, data, engine="auto", precision="exact", draws=50)
    assert by_name.metrics.confusion == by_model.metrics.confusion
    assert by_name.metrics.values["nll"].value == pytest.approx(by_model.metrics.values["nll"].value, abs=1e-4)
    assert by_name.cost.pictures_per_second > 0 < by_name.cost.peak_memory_mb
    assert by_name.cost.engine in ("openvino", "torch", "onnxruntime")


def test_batches_and_threads_change_nothing(model, data):
    one = vitrail.evaluate(model, data, batch_size=1, **EXACT)
    many = vitrail.evaluate(model, data, batch_size=64, reading=vitrail.bulk.settings.PictureConfig(workers=3), **EXACT)
    assert np.abs(one.answered.scores - many.answered.scores).max() < 1e-5
    assert [row.path for row in one.rows] == [row.path for row in many.rows]


def test_a_folder_that_disagrees_is_refused_with_its_names(model, tmp_path):
    for name in ("blue", "crimson"):
        (tmp_path / name).mkdir()
        coloured("red", 1).save(tmp_path / name / "a.png")
    with pytest.raises(DataError, match="only in the data: 'crimson'; only in the model: 'green', 'red'"):
        vitrail.evaluate(model, tmp_path, **EXACT)
    result = vitrail.evaluate(model, tmp_path, remap=True, **EXACT)
    assert (result.metrics.pictures, result.left_out) == (1, {"crimson": 1})
    with pytest.raises(DataError, match="only in the model: 'green'"):
        vitrail.evaluate(model, tmp_path, remap={"crimson": "red"}, **EXACT)


def test_classes_are_known_by_name_and_not_by_their_place(model, tmp_path):
    names = {"azure": "green", "blue": "blue", "zinnober": "red"}  # azure would be first
    for theirs, ours in names.items():
        for seed in range(4):
            (tmp_path / theirs).mkdir(exist_ok=True)
            coloured(ours, 30 + seed).save(tmp_path / theirs / f"{seed}.png")
    result = vitrail.evaluate(model, tmp_path, remap=names, **EXACT)
    own = own_logits(model, [row.path for row in result.good]).argmax(1)
    right = [names[row.path.split("/")[-2]] == LABELS[first] for row, first in zip(result.good, own, strict=True)]
    assert result["top1"] == pytest.approx(np.mean(right))


def test_which_split_is_measured(model, tmp_path):
    for split in ("train", "test"):
        for name in LABELS:
            put(tmp_path / split, name, len(split))
    assert vitrail.evaluate(model, tmp_path, **EXACT).about["split"] == "test"
    assert vitrail.evaluate(model, tmp_path, split="train", **EXACT).about["split"] == "train"
    with pytest.raises(UsageError, match="no split 'val'"):
        vitrail.evaluate(model, tmp_path, split="val", **EXACT)
    for path in sorted((tmp_path / "test").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (tmp_path / "test").rmdir()
    with pytest.raises(DataError, match="only a train split"):
        vitrail.evaluate(model, tmp_path, **EXACT)


def test_several_labels_to_a_picture(model, tmp_path):
    rows = ["path,label"]
    for seed, label in enumerate(("red", "blue|green", "green|red", "", "blue", "red|blue|green")):
        coloured("red", seed).save(tmp_path / f"{seed}.png")
        rows.append(f"{seed}.png,{label or '|'}")
    (tmp_path / "tags.csv").write_text("\n".join(rows))
    result = vitrail.evaluate(model, tmp_path / "tags.csv", labels_split="|", out=tmp_path / "report", **EXACT)
    logits = own_logits(model, [tmp_path / f"{seed}.png" for seed in range(6)])
    truth = np.array([[0, 0, 1], [1, 1, 0], [0, 1, 1], [0, 0, 0], [1, 0, 0], [1, 1, 1]], bool)
    assert (result.answered.truth == truth).all()
    assert result["exact_match"] == pytest.approx(peer.accuracy_score(truth, logits > 0))
    assert result["map"] == pytest.approx(peer.average_precision_score(truth, logits, average="macro"), abs=1e-6)
    assert result["f1_macro"] == pytest.approx(peer.f1_score(truth, logits > 0, average="macro", zero_division=0))
    assert not (tmp_path / "report" / "confusion.csv").exists()


def test_too_many_bad_files_are_an_error_after_the_report_is_written(model, data, tmp_path):
    with pytest.raises(DataError, match="2 of 33 pictures cannot be read"):
        vitrail.evaluate(model, data, max_bad=0.05, out=tmp_path / "report", **EXACT)
    assert (tmp_path / "report" / "bad_images.csv").read_text().count("\n") == 3
    assert vitrail.evaluate(model, data, max_bad=2, **EXACT).metrics.pictures == 31


def test_nothing_but_bad_files_is_an_error_and_no_crash(model, tmp_path):
    for name in LABELS:
        (tmp_path / "data" / name).mkdir(parents=True)
        (tmp_path / "data" / name / "a.png").write_text("no picture")
    with pytest.raises(DataError, match="3 of 3 pictures cannot be read"):
        vitrail.evaluate(model, tmp_path / "data", out=tmp_path / "report", **EXACT)
    assert (tmp_path / "report" / "report.html").stat().st_size > 1000


def test_a_report_among_the_pictures_is_refused(model, data):
    with pytest.raises(UsageError, match="is inside the data"):
        vitrail.evaluate(model, data, out=data / "report", **EXACT)


def test_a_model_without_classes_is_sent_to_embed(data):
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    features = create(ViTConfig(**sizes, image_size=32, num_classes=0), seed=0)
    with pytest.raises(UsageError, match="no classes"):
        vitrail.evaluate(features, data, **EXACT)
