"""Is the suggested learning rate one that learns, and nothing of the run changed by looking for it?"""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import torch
from train.tiny import TINY

from vitrail.errors import DataError
from vitrail.train.rates import find_rate, save, suggested
from vitrail.train.run import planned


def test_the_suggestion_is_where_the_loss_falls_fastest() -> None:
    rates = [10 ** (-6 + step / 10) for step in range(60)]
    losses = [2.0 if rate < 1e-4 else max(0.5, 2 - 1.5 * (torch.tensor(rate).log10().item() + 4)) for rate in rates]
    assert 1e-4 < suggested(rates, [*losses[:50], *(9.0 for _ in losses[50:])]) < 2e-3


def test_where_nothing_is_learnt_nothing_is_suggested() -> None:
    with pytest.raises(DataError, match="did not fall"):
        suggested([1e-3 * step for step in range(1, 50)], [1.0 + step for step in range(49)])


def test_a_plan_is_as_it_was_and_the_curve_is_drawn(pictures: Path, tmp_path: Path) -> None:
    plan = planned(pictures, "Ti/16", preset="none", settings={**TINY, "train.batch_size": 24})
    before = {name: tensor.clone() for name, tensor in plan.model.state_dict().items()}
    found = find_rate(plan, steps=60)
    assert all(torch.equal(before[name], tensor) for name, tensor in plan.model.state_dict().items())
    assert found.rates[0] == pytest.approx(1e-6)
    assert list(found.rates) == sorted(found.rates)
    assert 1e-5 < found.suggestion < 0.2
    files = save(found, tmp_path / "rates")
    assert all(file.stat().st_size > 500 for file in files)
    rows = list(csv.DictReader(files[0].read_text().splitlines()))
    assert [float(row["lr"]) for row in rows] == list(found.rates)
