"""report.html: one page that needs nothing else, not even a network. Its style and script are in page/.

A policy in the page forbids every address but data: ones, so the browser itself keeps it from asking anybody.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib import resources
from typing import Any

import msgspec
import numpy as np

from vitrail import __version__
from vitrail.evaluate.calibration import probabilities
from vitrail.evaluate.charts import DARK, LIGHT, STYLE, palette, plain, safe
from vitrail.evaluate.drawings import Drawing, percent
from vitrail.evaluate.evaluate import Evaluation
from vitrail.evaluate.gallery import Gallery, gallery_of
from vitrail.evaluate.matrix import MOST_CLASSES, clickable, matrix_table, pairs_list, tags_table
from vitrail.evaluate.measures import MEASURES, interval, number, shown_names
from vitrail.evaluate.metrics import ClassRow
from vitrail.evaluate.thumbnails import thumbnails

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
TILES = ("top1", "top5", "exact_match", "map", "f1_macro", "auroc_macro", "ece")
MANY = 15  # classes from which a box to filter them helps
MOST_BAD = 200  # rows of bad files in the page; bad_images.csv has all
ANSWERS = 3  # likeliest classes told of each picture


def page(evaluation: Evaluation, drawn: Mapping[str, Drawing]) -> str:
    """The whole page as text; `drawn` are the drawings to show in it."""
    title = f"{name(evaluation)} on {plain(str(evaluation.about.get('data', 'pictures')))}"
    gallery = gallery_of(evaluation.answered).only(clickable(evaluation.metrics))
    sections = [
        header(evaluation),
        measures(evaluation),
        charts("Training", [drawing for key, drawing in drawn.items() if key == "curves"]),
        mistakes(evaluation, gallery),
        confusion(evaluation, gallery),
        charts("How sure, and how well ranked", [drawn[key] for key in ("reliability", "roc") if key in drawn]),
        classes(evaluation, drawn.get("classes")),
        bad(evaluation),
        f'<p class="quiet">Made by vitrail {__version__}. The numbers are in metrics.json, every picture in '
        "predictions.csv.</p>",
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f"<title>{escape(title)}</title><style>{style()}</style></head><body><main>{''.join(sections)}</main>"
        f'<script type="application/json" id="data">{as_script(page_data(evaluation, gallery))}</script>'
        f"<script>{part('report.js')}</script></body></html>\n"
    )


def style() -> str:
    """Colours for light and dark, the page's style, the charts'."""
    dark = f"@media (prefers-color-scheme: dark) {{ :root {{ {palette(DARK)} }} }}"
    return f":root {{ {palette(LIGHT)} }} {dark} {part('report.css')} {STYLE}"


def part(file: str) -> str:
    """A file of page/."""
    return (resources.files("vitrail.evaluate") / "page" / file).read_text(encoding="utf-8")


def as_script(data: Mapping[str, Any]) -> str:
    """JSON that cannot end the script it stands in."""
    return msgspec.json.encode(data).decode().replace("<", "\\u003c")


def name(evaluation: Evaluation) -> str:
    """What the model is called."""
    return plain(str(evaluation.about.get("model", "a model")))


def header(evaluation: Evaluation) -> str:
    """What was measured on what, and the numbers people look for first."""
    about, metrics, cost = evaluation.about, evaluation.metrics, evaluation.cost
    split = f", {safe(str(about['split']))}" if about.get("split") not in (None, "", "all") else ""
    facts = (
        f"{metrics.pictures:,} pictures of {len(metrics.classes):,} classes ({safe(str(about.get('data', '')))}{split})"
    )
    values = metrics.values
    tiles = [
        f'<div class="tile"><span>{MEASURES[key].title}</span><b>{number(key, values[key].value)}</b>'
        f"<span>{interval(key, values[key]) or '&nbsp;'}</span></div>"
        for key in TILES
        if key in values
    ]
    tiles.append(
        f'<div class="tile cost"><span>pictures per second</span><b>{cost.pictures_per_second:,.1f}</b>'
        f"<span>{safe(cost.engine)}, {safe(cost.precision)}</span></div>"
    )
    return f'<h1>{safe(name(evaluation))}</h1><p class="quiet">{facts}</p>{warnings(evaluation)}' + (
        f'<div class="tiles">{"".join(tiles)}</div>'
    )


def warnings(evaluation: Evaluation) -> str:
    """What a reader has to know before believing the numbers."""
    lines = [safe(line) for line in evaluation.about.get("warnings", ())]
    if evaluation.bad:
        lines.append(
            f"{len(evaluation.bad):,} of {len(evaluation.rows):,} files could not be read and are in no number; <a "
            'href="#bad">they are listed below</a>.'
        )
    if evaluation.left_out:
        count, names = sum(evaluation.left_out.values()), ", ".join(map(safe, list(evaluation.left_out)[:8]))
        lines.append(f"{count:,} pictures of classes the model does not know were left out: {names}.")
    return "".join(f'<p class="warning">{line}</p>' for line in lines)


def measures(evaluation: Evaluation) -> str:
    """Every measure with its interval; what it cost stands in the same table."""
    values, cost = evaluation.metrics.values, evaluation.cost
    rows = [
        (MEASURES[key].title, number(key, values[key].value), interval(key, values[key]), MEASURES[key].says)
        for key in shown_names(values)
    ]
    rows += [
        ("pictures per second", f"{cost.pictures_per_second:,.1f}", "", f"In {cost.seconds:,.1f} s, reading included."),
        ("pictures per second, engine", f"{cost.engine_pictures_per_second:,.1f}", "", engine_says(evaluation)),
        ("peak memory", f"{cost.peak_memory_mb:,.0f} MB", "", "The most the whole process has had."),
    ]
    body = "".join(
        f'<tr><th scope="row">{title}</th><td class="n">{value}</td><td class="quiet">{between}</td>'
        f'<td class="says quiet">{safe(says)}</td></tr>'
        for title, value, between, says in rows
    )
    return (
        '<h2>Measures</h2><div class="scroll"><table class="plain measures"><thead><tr><th></th>'
        '<th class="n">value</th><th>95% interval</th><th class="says"></th></tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def engine_says(evaluation: Evaluation) -> str:
    """How the model was run."""
    cost = evaluation.cost
    return f"{cost.engine}, {cost.precision}, {cost.batch} pictures at a time, {cost.threads} threads."


def charts(title: str, drawn: Sequence[Drawing]) -> str:
    """Drawings side by side, where there is room."""
    figures = "".join(
        f"<figure><h3>{drawing.title}</h3>{drawing.svg}<figcaption>{safe(drawing.says)}</figcaption></figure>"
        for drawing in drawn
    )
    return f'<h2>{title}</h2><div class="charts">{figures}</div>' if figures else ""


def mistakes(evaluation: Evaluation, gallery: Gallery) -> str:
    """The answers that are furthest from the truth."""
    if not gallery.worst:
        return "<h2>Mistakes</h2><p>None on these pictures.</p>" if evaluation.metrics.pictures else ""
    return (
        "<h2>The worst mistakes</h2><p class='quiet'>The right class in bold, under it what the model said. The "
        "surest mistakes come first: some of them are mistakes of the labels.</p>"
        '<div class="gallery" id="worst"></div><noscript>These pictures need a browser that runs scripts.</noscript>'
    )


def confusion(evaluation: Evaluation, gallery: Gallery) -> str:
    """What is taken for what; a click shows the pictures."""
    metrics, labels = evaluation.metrics, evaluation.answered.labels
    if not metrics.pictures or len(labels) < 2:
        return ""
    if metrics.several:
        heading, words, table = "Missed and wrongly said", "", tags_table(metrics, gallery.cells)
    else:
        heading, table = "What is taken for what", matrix_table(metrics, labels) + pairs_list(metrics, labels)
        words = " Colour is the share of the row."
        if len(labels) > MOST_CLASSES:
            words += f" These are the classes confused most, of {len(labels):,}; confusion.csv has all."
    return (
        f'<h2>{heading}</h2><p class="quiet">Click a number to see its pictures.{words}</p>'
        f'<div class="beside">{table}<div class="seen" id="seen" aria-live="polite"></div></div>'
    )


def classes(evaluation: Evaluation, bars: Drawing | None) -> str:
    """One row per class, which a click on a heading sorts."""
    metrics = evaluation.metrics
    if len(metrics.classes) < 2 or not metrics.pictures:
        return ""
    body = "".join(map(class_row, metrics.classes))
    heads = "".join(
        f'<th scope="col" class="n">{head}</th>'
        for head in ("pictures", "predicted", "precision", "recall", "F1", "AUROC", "average precision")
    )
    box = '<input class="filter" type="search" placeholder="filter classes" aria-label="filter classes" hidden>'
    drawing = charts("", [bars]).removeprefix("<h2></h2>") if bars and len(metrics.classes) > MANY else ""
    return (
        f"<h2>Classes</h2>{drawing}{box if len(metrics.classes) > MANY else ''}"
        f'<div class="scroll"><table class="plain sorted"><thead><tr><th scope="col">class</th>{heads}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def class_row(row: ClassRow) -> str:
    """One class; a bar shows its F1."""
    cells = [f'<td class="n" data-value="{count}">{count:,}</td>' for count in (row.pictures, row.predicted)]
    cells += [
        f'<td class="n" data-value="{-1 if value is None else value}">{"" if value is None else percent(value)}</td>'
        for value in (row.precision, row.recall)
    ]
    bar = "" if row.f1 is None else f'<span class="share"><i style="width:{row.f1:.1%}"></i></span>'
    cells.append(
        f'<td class="n" data-value="{-1 if row.f1 is None else row.f1}">{"" if row.f1 is None else percent(row.f1)}'
        f"{bar}</td>"
    )
    cells += [
        f'<td class="n" data-value="{-1 if value is None else value}">{"" if value is None else f"{value:.4f}"}</td>'
        for value in (row.auroc, row.average_precision)
    ]
    return f'<tr><th scope="row">{safe(row.label)}</th>{"".join(cells)}</tr>'


def bad(evaluation: Evaluation) -> str:
    """The files that could not be read."""
    if not evaluation.bad:
        return ""
    rows = "".join(f"<tr><td>{safe(row.path)}</td><td>{safe(row.error)}</td></tr>" for row in evaluation.bad[:MOST_BAD])
    more = len(evaluation.bad) - MOST_BAD
    return (
        f'<h2 id="bad">Files that could not be read</h2><div class="scroll"><table class="plain"><thead><tr>'
        f"<th>file</th><th>why</th></tr></thead><tbody>{rows}</tbody></table></div>"
        + (f"<p>And {more:,} more in bad_images.csv.</p>" if more > 0 else "")
    )


def page_data(evaluation: Evaluation, gallery: Gallery) -> dict[str, Any]:
    """What the script shows: the pictures there is room for, and which cell each is of."""
    chosen = gallery.chosen()
    places = {place: number for number, place in enumerate(chosen)}
    cells = {
        key: {"total": len(all_of), "pictures": [places[place] for place in all_of if place in places]}
        for key, all_of in gallery.cells.items()
    }
    return {
        "labels": [plain(label) for label in evaluation.answered.labels],
        "pictures": list(pictures(evaluation, chosen)),
        "worst": [places[place] for place in gallery.worst if place in places],
        "cells": cells,
    }


def pictures(evaluation: Evaluation, chosen: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Each picture with its right classes and what the model said."""
    answered, good = evaluation.answered, evaluation.good
    chances = probabilities(answered.scores[list(chosen)], answered.several)
    seen = thumbnails([good[place].sample.item for place in chosen], evaluation.channels, evaluation.pictures.decoding)
    for place, chance, source in zip(chosen, chances, seen, strict=True):
        best = np.argsort(-chance, kind="stable")[:ANSWERS].tolist()
        truth = answered.truth[place]
        yield {
            "path": plain(good[place].path),
            "true": ", ".join(plain(answered.labels[one]) for one in np.flatnonzero(truth)),
            "answers": [[plain(answered.labels[one]), round(float(chance[one]), 4), bool(truth[one])] for one in best],
            "src": source,
            "small": source.startswith("data:image/png"),
        }
