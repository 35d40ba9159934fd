"""Documents that cannot lie: names, trees, tables and links are compared with the code."""

import re
import sys
from pathlib import Path

import pytest

import vitrail
from vitrail.explain.stages import STAGES
from vitrail.model.variants import config_for
from vitrail.model.vit import build_empty

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs"))
import generate  # noqa: E402

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_the_public_names_are_the_exported_ones() -> None:
    assert sorted(vitrail.__all__) == sorted(vitrail.HOMES)
    for name in vitrail.__all__:
        assert getattr(vitrail, name).__name__.rpartition(".")[2] == name
        assert callable(getattr(vitrail, name))  # vitrail.explain is a package that answers as its verb
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = vitrail.nothing


@pytest.mark.parametrize("page", generate.PAGES)
def test_generated_pages_are_fresh(page: str) -> None:
    assert (ROOT / "docs" / page).read_text() == generate.PAGES[page](), "run `make docs`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_between_pages_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_the_tree_in_the_readme_is_the_tree() -> None:
    shown = set(re.findall(r"[├└]── (\S+)", (ROOT / "README.md").read_text()))
    package = ROOT / "src" / "vitrail"
    for name in shown:
        assert (package / name).exists(), name
    folders = {f"{folder.name}/" for folder in package.iterdir() if folder.is_dir() and folder.name != "__pycache__"}
    assert folders <= shown
    files = {file.name for file in package.glob("*.py") if not file.name.startswith("__")}
    assert files <= shown


def test_every_probe_name_is_in_the_guide() -> None:
    page = (ROOT / "docs" / "guide" / "probe.md").read_text()
    assert [name for name in STAGES if f"`{name}`" not in page] == []


def test_the_anatomy_tells_the_shapes_of_a_real_forward_pass() -> None:
    page = (ROOT / "docs" / "guide" / "anatomy.md").read_text()
    walk = vitrail.trace(build_empty(config_for("B/16", num_classes=100, representation_size=768)), batch=32)
    told = re.findall(r"((?:`[\w.]+`(?:, )?)+)(?:,| is(?: a table of)?|:|[^`.|]*\|) ?(\d+(?:x\d+)+)", page)
    shapes = {stage.name: "x".join(map(str, stage.output)) for stage in walk.stages}
    checked = 0
    for names, shape in told:
        for name in re.findall(r"`([\w.]+)`", names):
            assert shapes[name] == shape, name
            checked += 1
    assert checked >= 25
    assert f"{walk.parameters:,} parameters" in page
    assert f"{walk.multiply_adds:,} multiply-adds" in page


def test_no_page_names_this_machine() -> None:
    for page in PAGES:
        assert not re.search(r"/work/|/root/|/tmp/", page.read_text()), page


def test_the_readmes_order_of_reading_exists() -> None:
    for name in re.findall(r"`(src/vitrail/\S+?\.py)`", (ROOT / "README.md").read_text()):
        assert (ROOT / name).is_file(), name
