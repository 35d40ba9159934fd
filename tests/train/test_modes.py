"""Does what was asked for learn, and nothing else: a model, its head, low-rank updates, a classifier on features?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from train.tiny import RICH, fingerprint, make_pictures, run_tiny

import vitrail
from vitrail.errors import ConfigError, DataError
from vitrail.train import features, step
from vitrail.train.adapters import DOWN, UP, effective, learning_tensors
from vitrail.train.config import TrainConfig
from vitrail.train.run import TrainResult, train

HYBRID: dict[str, Any] = {
    "model.resnet.layers": (1, 1),
    "model.resnet.width": 32,
    "model.patch_size": 1,
    "model.image_size": 32,
}


@pytest.fixture
def trained(pictures: Path, tmp_path: Path) -> Path:
    """Something to start from."""
    run_tiny(pictures, tmp_path / "trained", {"train.epochs": 1})
    return tmp_path / "trained" / "weights" / "last"


def begun(pictures: Path, start: Path, out: Path, changes: dict[str, Any]) -> TrainResult:
    """A run from these weights."""
    settings = {"train.epochs": 2, "train.batch_size": 12, "train.report": False, "data.val_share": 0.2, **changes}
    return train(pictures, start, out=out, preset="none", settings=settings, quiet=True)


def tuned(pictures: Path, start: Path, out: Path, changes: dict[str, Any]) -> vitrail.VisionTransformer:
    """What came of such a run."""
    begun(pictures, start, out, changes)
    return vitrail.load(out / "weights" / "last")


def moved(before: vitrail.VisionTransformer, after: vitrail.VisionTransformer) -> set[str]:
    old, new = before.state_dict(), after.state_dict()
    return {name for name in old if not torch.equal(old[name], new[name])}


def test_all_of_it(pictures: Path, trained: Path, tmp_path: Path) -> None:
    before = vitrail.load(trained)
    after = tuned(pictures, trained, tmp_path / "run", {})
    assert moved(before, after) == set(before.state_dict())


@pytest.mark.parametrize("mode", ["head", "probe"])
def test_the_head_alone(mode: str, pictures: Path, trained: Path, tmp_path: Path) -> None:
    before = vitrail.load(trained)
    after = tuned(pictures, trained, tmp_path / "run", {"train.mode": mode})
    assert moved(before, after) == {"head.classifier.weight", "head.classifier.bias"}


def test_low_rank_updates_are_merged_into_the_matrices_they_are_beside(
    pictures: Path, trained: Path, tmp_path: Path
) -> None:
    before = vitrail.load(trained)
    after = tuned(pictures, trained, tmp_path / "run", {"train.mode": "lora", "train.lora_rank": 2, "train.lr": 1e-2})
    changed = moved(before, after)
    assert {name for name in changed if not name.startswith("head.")} == {
        f"encoder.blocks.{block}.attn.{layer}.weight" for block in range(2) for layer in ("qkv", "proj")
    }
    name = "encoder.blocks.1.attn.qkv.weight"
    update = after.state_dict()[name] - before.state_dict()[name]
    assert torch.linalg.matrix_rank(update, atol=1e-6) == 2


def test_a_low_rank_update_begins_as_nothing_and_is_a_product() -> None:
    model = vitrail.create("Ti/16", num_classes=3, image_size=16, num_hidden_layers=1, seed=0)
    config = TrainConfig(mode="lora", lora_rank=4, lora_alpha=8.0, lora_layers=("mlp.fc1",))
    learning = learning_tensors(model, config)
    name = "encoder.blocks.0.mlp.fc1.weight"
    own = model.state_dict()[name]
    assert torch.equal(effective(model, learning, config)[name], own)
    with torch.no_grad():
        learning[name + UP].fill_(0.5)
    expected = own + 2.0 * learning[name + UP] @ learning[name + DOWN]
    torch.testing.assert_close(effective(model, learning, config)[name], expected)


def test_a_layer_that_does_not_exist_is_named(pictures: Path, trained: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"attn\.qkw.*\n.*attn\.qkv"):
        tuned(pictures, trained, tmp_path / "run", {"train.mode": "lora", "train.lora_layers": ("attn.qkw",)})


@pytest.mark.parametrize("changes", [{}, RICH], ids=["plain", "rich"])
def test_a_model_with_a_convolutional_stem(changes: dict[str, Any], pictures: Path, tmp_path: Path) -> None:
    result = run_tiny(pictures, tmp_path / "run", {**HYBRID, **changes, "train.epochs": 6})
    assert result.history[-1]["train_loss"] < result.history[0]["train_loss"]
    assert vitrail.load(tmp_path / "run").config.resnet is not None


def test_several_labels_to_a_picture(pictures: Path, tmp_path: Path) -> None:
    rows = [
        f"{path},{'|'.join({path.parent.name, 'any' if index % 2 else path.parent.name})}"
        for index, path in enumerate(sorted(pictures.rglob("*.png")))
    ]
    (tmp_path / "data.csv").write_text("\n".join(["path,label", *rows]))
    several: dict[str, Any] = {"data.labels_split": "|", "train.loss": "bce", "train.epochs": 8, "train.lr": 4e-3}
    result = run_tiny(tmp_path / "data.csv", tmp_path / "run", several)
    assert vitrail.load(tmp_path / "run").labels == ["any", "class 0", "class 1", "class 2"]
    assert result.history[-1]["train_loss"] < 0.9 * result.history[0]["train_loss"]
    with pytest.raises(ConfigError, match=r"train\.loss=bce"):
        run_tiny(tmp_path / "data.csv", tmp_path / "wrong", {"data.labels_split": "|"})


# A probe on cached features -----------------------------------------------------------------------------------------


def test_a_probe_computes_every_picture_once_and_never_again(
    pictures: Path, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    real = features.answers

    def counted(engine: Any, samples: Any, *rest: Any) -> Any:
        seen.append(len(samples))
        return real(engine, samples, *rest)

    monkeypatch.setattr(features, "answers", counted)
    tuned(pictures, trained, tmp_path / "run", {"train.mode": "probe", "train.epochs": 5})
    assert seen == [48, 12], "training and validation pictures"
    train(resume=tmp_path / "run", settings={"train.epochs": 6}, quiet=True)
    assert seen == [48, 12], "a run that goes on finds them"


def test_features_are_what_the_classifier_is_given(pictures: Path, trained: Path, tmp_path: Path) -> None:
    tuned(pictures, trained, tmp_path / "run", {"train.mode": "probe"})
    found = features.read(tmp_path / "run" / "features")
    model = vitrail.load(trained)
    picture = min(pictures.glob("class 0/*.png"))
    given: list[torch.Tensor] = []
    model.head.classifier.register_forward_hook(lambda _, inputs, output: given.append(inputs[0]))
    from vitrail.images.decode import decode
    from vitrail.images.transforms import normalise, transform

    pixels = transform(decode(str(picture)).pixels, model.preprocess)
    model(normalise(pixels[None], model.preprocess, torch.device("cpu")))
    rows = torch.cat([found.train, found.val])
    nearest = (rows - given[0]).abs().amax(1).min()
    assert nearest < 0.05, "up to the arithmetic of the engine"


def test_a_probe_that_was_stopped_goes_on_to_the_same_bits(
    pictures: Path, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vitrail.train import loop

    tuned(pictures, trained, tmp_path / "whole", {"train.mode": "probe"})
    real = loop.take_step

    def stopping(job: Any, state: Any, batches: Any) -> Any:
        if state.progress.step == 3:
            job.signals.number = 15
        return real(job, state, batches)

    monkeypatch.setattr(loop, "take_step", stopping)
    begun(pictures, trained, tmp_path / "stopped", {"train.mode": "probe"})
    monkeypatch.setattr(loop, "take_step", real)
    train(resume=tmp_path / "stopped", quiet=True)
    assert fingerprint(tmp_path / "stopped") == fingerprint(tmp_path / "whole")


def test_a_probe_reports_pictures_it_cannot_read(trained: Path, tmp_path: Path) -> None:
    data = make_pictures(tmp_path / "data", count=10)
    (data / "class 1" / "4.png").write_bytes(b"no picture")
    tuned(data, trained, tmp_path / "run", {"train.mode": "probe"})
    assert (tmp_path / "run" / "bad_images.csv").read_text().count("4.png") == 1
    with pytest.raises(DataError, match="cannot be read"):
        tuned(data, trained, tmp_path / "strict", {"train.mode": "probe", "train.max_bad": 0})


def test_a_probe_cannot_mix_pictures_it_never_sees_again(pictures: Path, trained: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"train\.mode=head"):
        tuned(pictures, trained, tmp_path / "run", {"train.mode": "probe", "train.mixup": 0.2})


# Portions ----------------------------------------------------------------------------------------------------------


def test_portions_of_a_step_add_up_to_the_step(pictures: Path, tmp_path: Path) -> None:
    still: dict[str, Any] = {"model.hidden_dropout_prob": 0.0, "model.drop_path_rate": 0.0, "train.precision": "fp32"}
    rows = [
        run_tiny(pictures, tmp_path / str(size), {**still, "train.micro_batch": size}).history for size in (12, 5, 1)
    ]
    for other in rows[1:]:  # 48 pictures in steps of 12, portions of 5, 5 and 2
        assert [row["train_loss"] for row in other] == pytest.approx([row["train_loss"] for row in rows[0]], abs=2e-4)


def test_a_bad_picture_weighs_nothing_and_the_others_weigh_no_less(tmp_path: Path, monkeypatch: Any) -> None:
    data = make_pictures(tmp_path / "data", count=4)
    (data / "class 1" / "2.png").write_bytes(b"no picture")
    norms: list[tuple[float, int]] = []
    real = step.descend
    monkeypatch.setattr(step, "descend", lambda *a: (real(*a), norms.append((a[2].loss_sum, a[2].pictures)))[0])
    changes = {"data.val_share": 0.0, "train.batch_size": 12, "train.epochs": 2, "train.lr": 0.0}
    result = run_tiny(data, tmp_path / "run", {**changes, "augment.flip": 0.0, "model.drop_path_rate": 0.0})
    assert [pictures for _, pictures in norms] == [11, 11]
    assert result.history[0]["train_loss"] == pytest.approx(norms[0][0] / 11, abs=1e-5)
    events = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    assert [event["path"][-5:] for event in events if event["event"] == "bad image"] == ["2.png"], "told once"
