"""Every explain method has its page, and the pictures of the guides are what the code draws today."""

import io
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vitrail.checkpoint.place import DEMO_MODEL
from vitrail.explain.methods import METHODS, options_of
from vitrail.prune.scores import SCORES

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guide"
sys.path.insert(0, str(ROOT / "docs"))
import pictures  # noqa: E402

LEVELS = 3.0  # of 255, on average: what other arithmetic and fonts may change; another map changes twenty


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_a_page_with_its_equation_its_picture_and_when_it_misleads(method: str) -> None:
    page = (GUIDE / "explain" / f"{method}.md").read_text()
    assert METHODS[method].says in page
    for heading in ("## What it means", "## Equation", "## When it misleads", "## How to ask"):
        assert heading in page, heading
    assert f"](../pictures/explain/{method}.webp)" in page
    for option in options_of(method):
        assert f"`{option}`" in page, option
    assert f"]({method}.md)" in (GUIDE / "explain" / "README.md").read_text()


def pixels(file: Path | io.BytesIO) -> np.ndarray:
    with Image.open(file) as image:
        return np.asarray(image.convert("RGB"), float)


@pytest.mark.parametrize("name", pictures.PICTURES)
@pytest.mark.skipif(not DEMO_MODEL.exists(), reason="the model of the pictures is not in this checkout")
def test_the_pictures_of_the_guides_are_what_the_code_draws(name: str) -> None:
    committed = pixels(GUIDE / "pictures" / name)
    drawn = pixels(io.BytesIO(pictures.encoded(pictures.PICTURES[name]())))
    assert drawn.shape == committed.shape, "run `make docs`"
    assert np.abs(drawn - committed).mean() < LEVELS, "run `make docs`"


def test_every_committed_picture_is_drawn_by_code_or_tells_the_command_that_made_it() -> None:
    committed = {str(path.relative_to(GUIDE / "pictures")) for path in (GUIDE / "pictures").rglob("*.webp")}
    measured = set(re.findall(r"pictures/(prune/\S+\.webp)", (GUIDE / "prune.md").read_text()))
    assert committed <= {*pictures.PICTURES, *measured}


def test_the_guide_to_pruning_names_every_score() -> None:
    page = (GUIDE / "prune.md").read_text()
    assert [name for name in SCORES if f"`{name}`" not in page] == []
