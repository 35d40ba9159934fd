"""What every test may ask for."""

from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of goldens, weights and photos beside the checkout; it never ships."""
    if not SHARED.is_dir():
        pytest.skip("needs ../shared (goldens, weights, photos), which is beside the checkout and not part of vitrail")
    return SHARED
