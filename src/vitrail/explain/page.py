"""One self-contained HTML page per picture: every view, what it scored, what each block would have answered.

No network, no script: a style sheet shows the picture itself while the pointer rests on a view.
"""

from __future__ import annotations

from html import escape

from vitrail.explain.colours import value_range
from vitrail.explain.draw import data_uri, drawn, enlarged, jpeg, png
from vitrail.explain.explain import Explained
from vitrail.explain.methods import METHODS, View

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem;
       color: #222; background: #fff }
h1 { font-size: 1.4rem; overflow-wrap: anywhere } h2 { font-size: 1.05rem; margin: 0 }
.views { display: grid; grid-template-columns: repeat(auto-fill, minmax(20rem, 1fr)); gap: 1.5rem }
figure { margin: 0 } figcaption { font-size: .9rem }
.pane { position: relative } .pane img { width: 100%; display: block; border-radius: 4px }
.pane img + img { position: absolute; inset: 0; transition: opacity .15s }
.pane:hover img + img, .pane:focus img + img { opacity: 0 }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums }
td, th { padding: .15rem .8rem .15rem 0; text-align: left } td.n { text-align: right }
meter { width: 8rem } .quiet { color: #666 }
@media (prefers-color-scheme: dark) { body { color: #ddd; background: #181818 } .quiet { color: #999 } }
@media (prefers-reduced-motion) { .pane img + img { transition: none } }
"""


def page(explained: Explained) -> str:
    """The whole page as text."""
    picture = enlarged(explained.picture)
    photo = data_uri(jpeg(picture), "jpeg")
    maps = [figure(view, explained, photo) for view in explained.views.values() if view.kind != "blocks"]
    blocks = [lens_table(view) for view in explained.views.values() if view.kind == "blocks"]
    name = escape(explained.name)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
        "style-src 'unsafe-inline'\">"
        f"<title>{name}: explained by vitrail</title><style>{STYLE}</style></head><body>"
        f"<h1>{name}</h1>{answers(explained)}"
        '<p class="quiet">Rest the pointer on a view (or focus it) to see the picture underneath.</p>'
        f'<div class="views">{"".join(maps)}</div>{"".join(blocks)}</body></html>\n'
    )


def answers(explained: Explained) -> str:
    """What the model said, and what of it is explained."""
    if explained.label is None:
        return (
            "<p>The model has no classes: the views explain the direction of the picture's own features.</p>"
            + chance(explained)
        )
    rows = "".join(
        f'<tr><td>{escape(label)}</td><td><meter value="{chance:.4f}"></meter></td><td class="n">{chance:.1%}</td></tr>'
        for label, chance in explained.top
    )
    return (
        f"<p>Explained: <strong>{escape(explained.label)}</strong> ({explained.confidence:.1%})</p>"
        f"<table>{rows}</table>{chance(explained)}"
    )


def chance(explained: Explained) -> str:
    """What any order of patches scores on this picture: a map that does no better says nothing."""
    if explained.chance is None:
        return ""
    scores = explained.chance
    return (
        f'<p class="quiet">A random order of patches scores deletion {scores.deletion:.3f}, '
        f"insertion {scores.insertion:.3f}, ROAD {scores.road:+.3f} on this picture.</p>"
    )


def figure(view: View, explained: Explained, photo: str) -> str:
    """One view with its caption."""
    overlay = data_uri(png(drawn(view, explained.picture)), "png")
    title = view.method.replace("_", " ")
    return (
        f'<figure><h2>{title}</h2><div class="pane" tabindex="0">'
        f'<img src="{photo}" alt="the picture"><img src="{overlay}" alt="{title} over the picture"></div>'
        f"<figcaption>{METHODS[view.method].says} {measures(view)}{told(view)}</figcaption></figure>"
    )


def measures(view: View) -> str:
    """The range of the colours, and the faithfulness if it was measured."""
    parts = []
    if view.kind != "colours":
        low, high = value_range(view.values, signed=view.kind == "signed")
        parts.append(f"Colours from {low:.3g} to {high:.3g}.")
    if view.scores:
        parts.append(
            f"Deletion {view.scores.deletion:.3f} (low is good), insertion {view.scores.insertion:.3f}, "
            f"ROAD {view.scores.road:+.3f} (high is good)."
        )
    if view.agreement is not None:
        parts.append(f"Rank correlation with the same map of a shuffled model: {view.agreement:+.2f} (near 0 is good).")
    return f'<span class="quiet">{" ".join(parts)}</span>'


def told(view: View) -> str:
    """Notes worth a sentence."""
    if "outliers" in view.notes:
        tokens = {token for _, token in view.notes["outliers"]}
        sinks = {token for _, token, _ in view.notes["sinks"]}
        return (
            f"<br>Patches that stand out by their norm in some layer: {len(tokens)}. "
            f"Tokens that receive over ten times an even share of attention in some layer: {len(sinks)}."
        )
    if "variance_explained" in view.notes:
        return f"<br>Variance shown: {sum(view.notes['variance_explained']):.0%}."
    return ""


def lens_table(view: View) -> str:
    """What the head would answer after each block."""
    labels = view.notes.get("labels")
    if labels is None:
        heading, cells = "Features forming: cosine with the final ones", [[f"{row[0]:.3f}"] for row in view.values]
    else:
        heading = "Logit lens: the answer after each block"
        cells = [
            [f"{escape(label)} {value:.1%}" for label, value in zip(names[:3], row[:3], strict=True)]
            for names, row in zip(labels, view.values, strict=True)
        ]
    rows = "".join(
        f'<tr><td class="n">{block}</td>{"".join(f"<td>{cell}</td>" for cell in row)}</tr>'
        for block, row in enumerate(cells)
    )
    return f"<h2>{heading}</h2><table><tr><th>block</th></tr>{rows}</table>"
