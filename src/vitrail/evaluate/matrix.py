"""The confusion matrix as a table whose cells can be clicked; of many classes, those that are confused the most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from vitrail.evaluate.charts import safe
from vitrail.evaluate.metrics import Metrics

MOST_CLASSES = 25  # rows that a screen has room for
PAIRS = 12  # of the pairs that are confused most
STRONG = 0.55  # a share of this is so dark that its number is light

Confusion = Sequence[tuple[int, int, int]]  # true class, predicted class, pictures


def shown_classes(confusion: Confusion, classes: int, most: int = MOST_CLASSES) -> list[int]:
    """All classes, or those of the most frequent confusions, in the model's order."""
    if classes <= most:
        return list(range(classes))
    chosen: dict[int, None] = {}
    for true, predicted, _ in confusions(confusion):
        if len(chosen.keys() | {true, predicted}) <= most:
            chosen |= dict.fromkeys((true, predicted))
    return sorted(chosen)


def confusions(confusion: Confusion) -> list[tuple[int, int, int]]:
    """The wrong pairs, the most frequent first."""
    return sorted((pair for pair in confusion if pair[0] != pair[1]), key=lambda pair: -pair[2])


def clickable(metrics: Metrics) -> set[str]:
    """The names of the cells that a page has a button for."""
    numbers = range(len(metrics.classes))
    if metrics.several:
        return {f"{number}-{kind}" for number in numbers for kind in ("missed", "extra")}
    chosen = shown_classes(metrics.confusion, len(numbers))
    pairs = confusions(metrics.confusion)[:PAIRS]
    return {f"{row}-{col}" for row in chosen for col in chosen} | {f"{true}-{said}" for true, said, _ in pairs}


def matrix_table(metrics: Metrics, labels: Sequence[str]) -> str:
    """Rows are true classes, columns what they were taken for; what falls outside is summed at the right."""
    chosen = shown_classes(metrics.confusion, len(labels))
    counts = {(true, predicted): pictures for true, predicted, pictures in metrics.confusion}
    totals = Counter({row: metrics.classes[row].pictures for row in chosen})
    others = len(chosen) < len(labels)
    heads = "".join(f'<th scope="col"><span>{safe(labels[col])}</span></th>' for col in chosen)
    heads += '<th scope="col"><span>another</span></th>' if others else ""
    rows = []
    for row in chosen:
        cells = [cell(f"{row}-{col}", counts.get((row, col), 0), totals[row], row == col) for col in chosen]
        rest = totals[row] - sum(counts.get((row, col), 0) for col in chosen)
        cells += [f'<td class="rest">{rest or ""}</td>'] if others else []
        rows.append(f'<tr><th scope="row">{safe(labels[row])}</th>{"".join(cells)}</tr>')
    corner = '<td class="corner"><span>is \N{DOWNWARDS ARROW}</span> <span>taken for \N{RIGHTWARDS ARROW}</span></td>'
    return (
        f'<div class="scroll"><table class="matrix"><thead><tr>{corner}{heads}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def cell(name: str, pictures: int, of: int, right: bool) -> str:
    """One cell: as dark as its share of the row."""
    if not pictures:
        return "<td></td>"
    share = pictures / max(of, 1)
    kind = ("hit" if right else "miss") + (" strong" if share > STRONG else "")
    return (
        f'<td class="{kind}" style="--share:{share:.3f}"><button type="button" data-cell="{name}">'
        f"{pictures}</button></td>"
    )


def pairs_list(metrics: Metrics, labels: Sequence[str]) -> str:
    """What is confused most, as a list whose entries can be clicked too."""
    most = confusions(metrics.confusion)[:PAIRS]
    return listed(
        (f"{true}-{predicted}", f"{safe(labels[true])} \N{RIGHTWARDS ARROW} {safe(labels[predicted])}", pictures)
        for true, predicted, pictures in most
    )


def tags_table(metrics: Metrics, names: Iterable[str]) -> str:
    """Where pictures have several classes: how often each was missed, and how often wrongly said."""
    known, rows = set(names), []
    for number, row in enumerate(metrics.classes):
        missed, extra = row.pictures - row.right, row.predicted - row.right
        cells = [
            cell(f"{number}-{kind}", count, of, False) if f"{number}-{kind}" in known else "<td></td>"
            for kind, count, of in (("missed", missed, row.pictures), ("extra", extra, row.predicted))
        ]
        rows.append(f'<tr><th scope="row">{safe(row.label)}</th><td class="rest">{row.right}</td>{"".join(cells)}</tr>')
    return (
        '<div class="scroll"><table class="matrix tags"><thead><tr><td></td><th scope="col">found</th>'
        f'<th scope="col">missed</th><th scope="col">wrongly said</th></tr></thead><tbody>{"".join(rows)}'
        "</tbody></table></div>"
    )


def listed(entries: Iterable[tuple[str, str, int]]) -> str:
    """Buttons in a list: cell name, words (safe already), pictures."""
    items = "".join(
        f'<li><button type="button" data-cell="{name}">{words}</button> <span class="quiet">{pictures}</span></li>'
        for name, words, pictures in entries
    )
    return f'<ol class="pairs">{items}</ol>' if items else ""
