"""Does pruning keep to its budget, measure what it says, and give an ordinary model?"""

from __future__ import annotations

import json
from dataclasses import replace as changed
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from oracle.tiny import random_images, random_model, tiny_config
from PIL import Image

import vitrail.prune
from vitrail import checkpoint
from vitrail.cli.prune import command
from vitrail.errors import UsageError
from vitrail.explain.relevance import relevance
from vitrail.prune.budget import Budget, budget_of, by_layer, counts_to_try, least_important, share_of
from vitrail.prune.curve import Point, change, chosen, interleaved, unmeasurable
from vitrail.prune.prune import Pruned, head_order, prune
from vitrail.prune.recover import recover
from vitrail.prune.save import save
from vitrail.prune.scores import head_scores
from vitrail.prune.surgery import prune_heads
from vitrail.prune.task import answers, task_for


@pytest.fixture(scope="module")
def found(reader: Any, digits: Any) -> Pruned:
    images, labels = digits[0][1400:1600], digits[1][1400:1600]
    return prune(reader, images, labels, heads="50%", points=5, batch_size=50)


def test_half_the_heads_go_by_importance_and_that_beats_chance(found: Pruned, reader: Any, digits: Any) -> None:
    assert sum(map(len, found.removed.values())) == 6
    gone = [found.importance[layer, head] for layer, heads in found.removed.items() for head in heads]
    assert max(gone) <= found.importance.flatten().sort().values[6]
    assert found.measure == "top-1 accuracy"
    assert found.before.quality > 0.8
    at_half, chance = (next(one for one in points if one.heads == 6) for points in (found.curve, found.chance))
    assert at_half.quality > chance.quality + 0.03
    assert at_half.loss < chance.loss
    # quality is measured on the images that did not score: every other one
    held_out = digits[0][1400:1600][1::2]
    right = found.model(held_out).argmax(1) == digits[1][1400:1600][1::2]
    assert found.after.quality == pytest.approx(right.double().mean().item())
    assert found.after.parameters == sum(one.numel() for one in found.model.parameters()) < found.before.parameters


def test_the_curve_starts_whole_and_ends_with_nine_tenths_gone(found: Pruned) -> None:
    assert [point.heads for point in found.curve] == [0, 3, 5, 6, 8, 11]
    assert found.curve[0].quality == found.before.quality
    assert all(point.speed_low <= point.speed <= point.speed_high for point in found.curve)
    assert [one.heads for one in found.chance] == [point.heads for point in found.curve]
    assert [point.parameters for point in found.curve] == sorted((p.parameters for p in found.curve), reverse=True)


def test_the_pruned_model_is_an_ordinary_one(found: Pruned, digits: Any, tmp_path: Path) -> None:
    paths = save(found, tmp_path)
    again = checkpoint.load(tmp_path / "model")
    assert again.config == found.model.config
    images = digits[0][1400:1404]
    assert torch.allclose(again(images), found.model(images), atol=1e-5)
    assert relevance(again, images).isfinite().all()
    data = json.loads((tmp_path / "prune.json").read_text())
    assert {int(layer): heads for layer, heads in data["removed"].items()} == found.removed
    assert np.allclose(data["importance"], found.importance)
    assert data["after"]["quality"] == found.after.quality
    for name in ("importance.svg", "curve.svg"):
        assert tmp_path / name in paths
        ElementTree.parse(tmp_path / name)
    with Image.open(tmp_path / "curve.png") as image:
        assert image.size[0] > 500


def test_a_model_pruned_before_can_be_pruned_again(found: Pruned, digits: Any, tmp_path: Path) -> None:
    images, labels = digits[0][1400:1440], digits[1][1400:1440]
    again = prune(found.model, images, labels, heads=2, points=2, score="taylor")
    assert again.importance.isnan().sum() == 6
    assert sum(len(again.model.config.heads_in(layer)) for layer in range(3)) == 4
    save(again, tmp_path)
    assert None in json.loads((tmp_path / "prune.json").read_text())["importance"][0] + [
        value for row in json.loads((tmp_path / "prune.json").read_text())["importance"] for value in row
    ]


def test_an_allowed_drop_takes_out_as_many_heads_as_it_pays_for(reader: Any, digits: Any) -> None:
    images, labels = digits[0][1400:1600], digits[1][1400:1600]
    some, none = (prune(reader, images, labels, max_drop=drop, points=7, batch_size=50) for drop in (100.0, 0.0))
    assert sum(map(len, some.removed.values())) == 11  # all that the curve looks at
    least = none.curve[0].quality
    allowed = [point.heads for point in none.curve if point.quality >= least]
    assert sum(map(len, none.removed.values())) == max(allowed)


def test_blocks_and_neurons_go_first_and_alone_unless_heads_are_asked_for(reader: Any, digits: Any) -> None:
    images, labels = digits[0][1400:1480], digits[1][1400:1480]
    shallow = prune(reader, images, labels, layers=1, neurons="25%", points=2)
    assert shallow.model.config.num_hidden_layers == 2
    assert shallow.model.config.intermediate_size == 96 - 24
    assert len(shallow.layers) == 1
    assert shallow.neurons == 24
    assert shallow.removed == {}
    assert shallow.before.parameters > shallow.after.parameters
    both = prune(reader, images, labels, neurons=10, heads=3, points=2)
    assert (both.neurons, sum(map(len, both.removed.values()))) == (10, 3)


def test_fine_tuning_brings_quality_back(reader: Any, digits: Any) -> None:
    images = digits[0][1200:1400]
    smaller = prune_heads(reader, {0: [0, 1, 2], 1: [0, 1], 2: [0, 1]})
    whole = {name: value.clone() for name, value in reader.state_dict().items()}
    task = task_for(reader, digits[0][1400:], digits[1][1400:])
    before = task.quality(answers(smaller, task))
    losses = recover(smaller, reader, images, steps=60, batch_size=32)
    assert np.mean(losses[-10:]) < 0.6 * np.mean(losses[:5])
    assert task.quality(answers(smaller, task)) > before + 0.05
    assert not smaller.training
    assert all(torch.equal(value, whole[name]) for name, value in reader.state_dict().items())


def test_scoring_anew_on_the_way_gives_another_order_of_the_same_heads() -> None:
    model = random_model(tiny_config(num_hidden_layers=4))
    task = task_for(model, random_images(model.config, batch=8))
    once, importance = head_order(model, task, "ablation", 1, 0)
    thrice, same = head_order(model, task, "ablation", 3, 0)
    assert torch.equal(importance, same)
    assert sorted(once) == sorted(thrice) == [(layer, head) for layer in range(4) for head in range(4)]
    assert once[:5] == thrice[:5]  # the first third is scored once in both
    after = head_scores(prune_heads(model, by_layer(once[:5])), task, "ablation")
    assert thrice[5] == least_important(after)[0]


def test_two_heads_that_stand_in_for_each_other_do_not_both_go() -> None:
    model = random_model(tiny_config(num_hidden_layers=1))
    with torch.no_grad():  # heads 0 and 1 alike; either alone is enough, since their sum is clipped by the norm
        attention = model.encoder.blocks[0].attn
        for part in range(3):
            attention.qkv.weight[32 * part + 8 : 32 * part + 16] = attention.qkv.weight[32 * part : 32 * part + 8]
            attention.qkv.bias[32 * part + 8 : 32 * part + 16] = attention.qkv.bias[32 * part : 32 * part + 8]
        attention.proj.weight[:, :16] *= 30
        attention.proj.weight[:, 8:16] = attention.proj.weight[:, :8]
    task = task_for(model, random_images(model.config, batch=8))
    assert head_order(model, task, "ablation", 1, 0)[0][:2] == [(0, 0), (0, 1)]
    anew = head_order(model, task, "ablation", 4, 0)[0]
    assert anew[-1] in [(0, 0), (0, 1)]


def test_a_model_without_classes_is_pruned_by_its_features_and_their_neighbours() -> None:
    model = random_model(tiny_config(num_classes=0))
    images = random_images(model.config, batch=12)
    bare = prune(model, images, heads=2, points=2)
    assert bare.measure == "features stay (cosine)"
    assert bare.before.quality == pytest.approx(1.0)
    labelled = prune(model, images, torch.arange(12) // 6, heads=2, points=2, score="gradient")
    assert labelled.measure == "nearest neighbour has the same label"


def test_the_package_answers_as_the_verb() -> None:
    model = random_model(tiny_config())
    images = random_images(model.config, batch=8)
    assert vitrail.prune(model, images, heads=1, points=2).removed == prune(model, images, heads=1, points=2).removed


# Budgets -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, Budget(heads=43)),
        ({"heads": "30%"}, Budget(heads=43)),
        ({"heads": 7}, Budget(heads=7)),
        ({"heads": "12"}, Budget(heads=12)),
        ({"max_drop": 0.5}, Budget(max_drop=0.5)),
        ({"speed": "1.3x"}, Budget(speed=1.3)),
        ({"speed": 2}, Budget(speed=2.0)),
    ],
)
def test_budgets_as_people_write_them(asked: Any, expected: Budget) -> None:
    assert budget_of(144, **{"heads": None, "max_drop": None, "speed": None} | asked) == expected


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"heads": "many"}, "heads is 'many'"),
        ({"heads": 200}, "0 to 144"),
        ({"heads": "120%"}, "0 to 144"),
        ({"max_drop": -1}, "max_drop is -1"),
        ({"speed": "0.5x"}, "speed is '0.5'"),
        ({"speed": "fast"}, "Times as fast"),
        ({"heads": 3, "speed": 2}, "More than one budget"),
    ],
)
def test_budgets_that_cannot_be_met_are_refused(asked: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        budget_of(144, **{"heads": None, "max_drop": None, "speed": None} | asked)


def points() -> list[Point]:
    base = Point(0, 0.90, 0.3, 0.0, 0.0, 0.0, 10.0, 1.0, 0.9, 1.1, 100)
    return [
        base,
        *(
            changed(base, heads=n, quality=q, change=q - 0.9, change_low=q - 0.92, change_high=q - 0.88, speed=s)
            for n, q, s in ((4, 0.91, 1.1), (8, 0.88, 1.3), (12, 0.896, 1.5), (16, 0.5, 1.9))
        ),
    ]


def test_a_budget_chooses_its_point() -> None:
    assert chosen(points(), Budget(heads=8)).heads == 8  # type: ignore[union-attr]
    assert chosen(points(), Budget(max_drop=0.5)).heads == 12  # type: ignore[union-attr]
    assert chosen(points(), Budget(max_drop=0.0)).heads == 4  # type: ignore[union-attr]
    assert chosen(points(), Budget(speed=1.25)).heads == 8  # type: ignore[union-attr]
    assert chosen(points(), Budget(speed=3.0)) is None
    assert chosen(points()[2:3], Budget(max_drop=1.0)) is None


def test_no_measurable_loss_ends_where_the_interval_leaves_zero_behind() -> None:
    assert unmeasurable(points()).heads == 12
    early = [points()[0], changed(points()[1], change_high=-0.01), *points()[2:]]
    assert unmeasurable(early).heads == 0  # what recovers by luck further on does not count


def test_the_interval_of_a_change_is_over_images_and_paired() -> None:
    same = change(torch.zeros(50, dtype=torch.double))
    assert same == (0.0, 0.0, 0.0)  # two models that agree everywhere differ by nothing, whatever their accuracy
    flips = torch.zeros(400, dtype=torch.double)
    flips[:40], flips[40:60] = -1, 1
    mean, low, high = change(flips)
    half = 1.96 * flips.std().item() / 20
    assert mean == pytest.approx(-0.05)
    assert (low, high) == pytest.approx((mean - half, mean + half), abs=0.006)


def test_a_drop_that_is_passed_at_once_is_told_with_the_least(reader: Any, digits: Any) -> None:
    images, labels = digits[0][1400:1480], digits[1][1400:1480]
    with pytest.raises(UsageError, match="Every number of heads costs more"):
        prune(reader, images, labels, layers=2, max_drop=0.0, points=2)


def test_heads_are_ordered_across_layers_and_those_gone_are_left_out() -> None:
    scores = torch.tensor([[0.3, torch.nan, 0.1], [0.2, -0.5, torch.nan]])
    assert least_important(scores) == [(1, 1), (0, 2), (1, 0), (0, 0)]
    assert by_layer(least_important(scores)) == {0: [0, 2], 1: [0, 1]}
    assert counts_to_try(100, 4, 33) == [0, 30, 33, 60, 90]
    assert share_of(96, "25%", "neurons") == 24


def test_a_speed_nobody_reaches_is_told_with_the_fastest() -> None:
    model = random_model(tiny_config())
    with pytest.raises(UsageError, match="The fastest was"):
        prune(model, random_images(model.config, batch=8), speed=90, points=3)


def test_models_take_turns_when_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[str] = []
    seconds = interleaved([lambda _: turns.append("a"), lambda _: turns.append("b")], torch.zeros(1), rounds=3)  # type: ignore[list-item]
    assert turns == ["a", "b"] * 4
    assert [len(each) for each in seconds] == [3, 3]


# At the prompt -----------------------------------------------------------------------------------------------------


@pytest.fixture
def data(tmp_path: Path) -> Path:
    draw = np.random.RandomState(0)
    for name in ("0", "1"):
        (tmp_path / "data" / name).mkdir(parents=True)
        for number in range(6):
            pixels = draw.randint(0, 255, (40, 40, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "data" / name / f"{number}.png")
    return tmp_path / "data"


SMALL = ["--set", "model.image_size=32", "--set", "model.num_hidden_layers=2", "--set", "model.num_classes=2"]


def test_the_command_prunes_saves_and_reports(data: Path, tmp_path: Path) -> None:
    (data / "1" / "bad.png").write_bytes(b"")
    out = tmp_path / "out"
    result = CliRunner().invoke(
        command, ["Ti/16", str(data), "--heads", "2", "--out", str(out), *SMALL], catch_exceptions=False
    )
    assert "top-1 accuracy" in result.stdout
    assert "heads taken out: layer" in result.stdout
    assert "bad.png" in result.stderr
    assert {path.name for path in out.iterdir()} == {
        *("model", "prune.json", "curve.png", "curve.svg", "importance.png", "importance.svg")
    }
    again = checkpoint.load(out / "model")
    assert sum(len(again.config.heads_in(layer)) for layer in range(2)) == 4
    unlabelled = CliRunner().invoke(
        command,
        ["Ti/16", *(str(data / "0" / f"{n}.png") for n in range(6)), "--json", "--out", str(tmp_path / "two"), *SMALL],
        catch_exceptions=False,
    )
    assert json.loads(unlabelled.stdout)["measure"] == "same answer as before"
