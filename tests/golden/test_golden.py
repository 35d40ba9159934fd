"""Did anything move? `make golden` prints what, and stores it anew."""

from __future__ import annotations

import numpy as np
import pytest
from regenerate import CASES, HERE, fresh_weights, moved, stages, stored

# Copied, never computed: these are the same bits on every machine.
COPIED = ("images", "tokens.class", "tokens.distillation", "tokens.registers")


@pytest.mark.parametrize("case", CASES)
def test_every_stage_answers_as_before(case: str) -> None:
    old, new = stored(case), stages(case)
    assert list(new) == list(old), "the names a probe offers are an interface"
    for name, array in new.items():
        assert array.shape == old[name].shape, name
        if name in COPIED:
            assert np.array_equal(array, old[name]), name
        np.testing.assert_allclose(array, old[name], rtol=1e-6, atol=1e-6, err_msg=name)


def test_a_seed_gives_the_weights_it_always_gave() -> None:
    old, new = stored("fresh-weights"), fresh_weights()
    assert list(new) == list(old)
    for name, array in new.items():
        np.testing.assert_allclose(array, old[name], rtol=0, atol=1e-5 * np.abs(old[name]).max(), err_msg=name)


def test_the_goldens_stay_small() -> None:
    assert sum(path.stat().st_size for path in HERE.glob("*.npz")) <= 100 * 1024


def test_what_moved_is_told_by_name_and_size() -> None:
    old = {"a": np.zeros(2), "b": np.zeros(2), "c": np.zeros(2), "d": np.zeros(2)}
    new = {"a": np.zeros(2), "b": np.array([0, 0.5]), "c": np.zeros(3), "e": np.zeros(1)}
    assert moved(old, new) == ["- d", "  b moved by up to 0.5", "  c (2,) -> (3,)", "+ e (1,)"]
