"""A tiny classifier that has really learnt something, trained once per run (trained.py)."""

from __future__ import annotations

import pytest
from explain import trained
from torch import Tensor

from vitrail.model.vit import VisionTransformer


@pytest.fixture(scope="session")
def digits() -> tuple[Tensor, Tensor]:
    return trained.digits()


@pytest.fixture(scope="session")
def reader() -> VisionTransformer:
    return trained.reader()
