"""Is the report one file that asks nobody, does a click show the right pictures, and do the tables add up?"""

import csv
import json
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest
from evaluate.conftest import LABELS, coloured

import vitrail
from vitrail.evaluate.answering import log_probabilities
from vitrail.evaluate.gallery import MOST, WORST, gallery_of
from vitrail.evaluate.matrix import MOST_CLASSES, shown_classes
from vitrail.evaluate.metrics import Answered, measure
from vitrail.evaluate.save import save

EXACT = {"engine": "torch", "precision": "exact", "draws": 50}
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
HISTORY = [{"epoch": n, "train_loss": 1 / n, "val_loss": 2 / n, "val_top1": 1 - 1 / n, "lr": 1e-3 / n} for n in (1, 2)]


@pytest.fixture(scope="module")
def report(model, data, tmp_path_factory):
    """A report on the coloured pictures."""
    folder = tmp_path_factory.mktemp("report")
    result = vitrail.evaluate(model, data, **EXACT)
    save(result, folder, HISTORY)
    return result, folder


class Addresses(HTMLParser):
    """Every attribute that a browser would fetch from."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attributes):
        self.found += [value for name, value in attributes if name in ("src", "href", "srcset", "action", "data")]


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def in_browser(html, tmp_path, script):
    """What chromium makes of a page after a script at its end."""
    page = tmp_path / "page.html"
    page.write_text(html.replace("</body>", f"<script>{script}</script></body>"))
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=500", "--dump-dom"]
    return subprocess.run([*command, page.as_uri()], capture_output=True, text=True, check=True, timeout=120).stdout


def test_the_page_asks_nobody(report):
    html = (report[1] / "report.html").read_text()
    parser = Addresses()
    parser.feed(html)
    assert [address for address in parser.found if not address.startswith("#")] == []
    assert "Content-Security-Policy\" content=\"default-src 'none'; img-src data:" in html
    assert set(re.findall(r"\w+://[^\s\"'<]+", html)) == {"http://www.w3.org/2000/svg"}  # a name, not an address
    assert "@import" not in html
    assert "url(" not in html


def test_the_tables_add_up(report):
    result, folder = report
    predictions = rows_of(folder / "predictions.csv")
    assert [row["path"] for row in predictions] == [row.path for row in result.rows]
    assert sum(row["correct"] == "True" for row in predictions) == round(result["top1"] * 31)
    confusion = rows_of(folder / "confusion.csv")
    assert sum(int(row["pictures"]) for row in confusion) == 31
    hits = {row["true"]: int(row["pictures"]) for row in confusion if row["true"] == row["predicted"]}
    classes = rows_of(folder / "per_class.csv")
    assert {row["label"]: int(row["right"]) for row in classes} == {name: hits.get(name, 0) for name in LABELS}
    assert [row["reason"].partition(":")[0] for row in rows_of(folder / "bad_images.csv")] == ["corrupt", "empty"]
    document = json.loads((folder / "metrics.json").read_text())
    assert document["values"]["top1"]["value"] == result["top1"]
    assert (document["schema_version"], document["files"], document["bad"]) == (1, 33, 2)


def test_the_drawings_stand_alone(report):
    names = {path.stem for path in (report[1] / "plots").iterdir()}
    assert names == {"curves", "reliability", "roc", "classes", "confusion"}
    for path in (report[1] / "plots").iterdir():
        root = ElementTree.parse(path).getroot()
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert "var(--" not in path.read_text()


def test_every_cell_has_its_pictures_and_the_mislabelled_one_is_among_the_worst(report):
    result, folder = report
    html = (folder / "report.html").read_text()
    data = json.loads(re.search(r'id="data">(.*?)</script>', html, re.DOTALL)[1])
    for name, cell in data["cells"].items():
        true, said = map(int, name.split("-"))
        assert cell["total"] == len(cell["pictures"])  # there is room for all of these
        for place in cell["pictures"]:
            picture = data["pictures"][place]
            assert picture["true"] == LABELS[true]
            assert picture["answers"][0][0] == LABELS[said]
            assert picture["src"].startswith("data:image/png;base64,")
    assert sum(cell["total"] for cell in data["cells"].values()) == 31
    assert any(data["pictures"][place]["path"].endswith("mislabelled.png") for place in data["worst"])
    assert len(data["worst"]) == 31 - round(result["top1"] * 31)


@pytest.mark.skipif(not CHROMIUM, reason="needs chromium")
def test_a_click_on_a_cell_shows_its_pictures_in_a_browser(report, tmp_path):
    result, folder = report
    gallery = gallery_of(result.answered)
    name, places = next((name, places) for name, places in gallery.cells.items() if name == "1-1")
    click = f"document.querySelector('[data-cell=\"{name}\"]').click()"
    dom = in_browser((folder / "report.html").read_text(), tmp_path, click)
    seen = dom[dom.index('id="seen"') :]
    seen = seen[: seen.index("<h2")]
    assert "green, recognised" in seen
    assert [place for place in places if result.good[place].path not in seen] == []
    assert seen.count("<figure>") == seen.count("<img") == len(places)
    worst = dom[dom.index('id="worst"') : dom.index("<noscript>")]
    assert worst.count("<figure>") == len(gallery.worst)


def test_names_of_strangers_are_text(model, tmp_path):
    nasty = "</script><img src=x onerror=document.title='owned'>"
    folder = "a]]><script>document.title='owned'<!--\u202e\x1b[31m"
    names = {"blue": "blue", folder.replace("/", ""): "green", nasty.replace("/", "\u2215"): "red"}
    for theirs, ours in names.items():
        (tmp_path / "data" / theirs).mkdir(parents=True)
        coloured(ours, 1).save(tmp_path / "data" / theirs / "<b onclick=alert(1)>.png")
    labels, model.labels = model.labels, list(names)
    try:
        result = vitrail.evaluate(model, tmp_path / "data", **EXACT)
    finally:
        model.labels = labels
    save(result, tmp_path / "report")
    html = (tmp_path / "report" / "report.html").read_text()
    assert html.count("<script") == html.count("</script>") == 2
    for mark in ("<img src=x", "<b onclick", "\u202e", "\x1b"):
        assert mark not in html
    for path in (tmp_path / "report" / "plots").iterdir():
        ElementTree.parse(path)
    if CHROMIUM:
        dom = in_browser(html, tmp_path, "")
        assert "owned</title>" not in dom


def answered(pictures, classes, seed=0):
    random = np.random.default_rng(seed)
    label = random.integers(0, classes, pictures)
    logits = random.normal(0, 1, (pictures, classes)).astype(np.float32)
    logits[np.arange(pictures), label] += 2
    truth = np.zeros((pictures, classes), bool)
    truth[np.arange(pictures), label] = True
    return Answered(log_probabilities(logits), truth, tuple(f"class {n}" for n in range(classes)))


def test_a_page_has_room_for_so_many_pictures_and_the_worst_come_first():
    given = answered(5000, 40)
    gallery = gallery_of(given)
    chosen = gallery.chosen()
    assert len(chosen) == len(set(chosen)) == MOST
    assert tuple(chosen[:WORST]) == gallery.worst
    label, first = given.truth.argmax(1), given.first
    assert all(label[place] != first[place] for place in gallery.worst)
    assert sorted(place for places in gallery.cells.values() for place in places) == list(range(5000))
    own = given.scores[given.truth]
    for name, places in gallery.cells.items():
        assert {f"{label[place]}-{first[place]}" for place in places} == {name}
        assert (np.diff(own[list(places)]) >= -1e-6).all()  # the least likely right answer first


def test_of_many_classes_the_matrix_shows_those_that_are_confused_most():
    found = measure(answered(8000, 200), draws=0)
    chosen = shown_classes(found.confusion, 200)
    assert len(chosen) == MOST_CLASSES == len(set(chosen))
    assert chosen == sorted(chosen)
    most = max((pair for pair in found.confusion if pair[0] != pair[1]), key=lambda pair: pair[2])
    assert {most[0], most[1]} <= set(chosen)
    assert shown_classes(found.confusion, 3) == [0, 1, 2]


def test_a_thousand_classes_make_a_page_of_a_reasonable_size(report, tmp_path):
    given = answered(2000, 1000)
    row = report[0].good[0]
    rows = tuple(replace(row, place=place) for place in range(2000))
    save(replace(report[0], rows=rows, answered=given, metrics=measure(given, draws=0)), tmp_path)
    html = (tmp_path / "report.html").read_text()
    assert len(html) < 2_500_000
    assert html.count("data-cell") < 800


def test_saving_again_replaces_whole_files_and_leaves_others_alone(report, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    save(report[0], tmp_path)
    first = (tmp_path / "report.html").read_bytes()
    save(report[0], tmp_path)
    assert (tmp_path / "report.html").read_bytes() == first
    assert (tmp_path / "mine.txt").read_text() == "mine"
    assert not list(tmp_path.rglob("*.tmp"))
