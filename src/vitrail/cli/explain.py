"""vitrail explain: why a model answers as it does, as pictures, numbers and pages."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vitrail.cli.options import config_options, json_option
from vitrail.cli.progress import progress
from vitrail.errors import SomeInputsBad, UsageError

if TYPE_CHECKING:
    from vitrail.explain.compare import Rank
    from vitrail.explain.explain import Explained
    from vitrail.images.loader import File
    from vitrail.model.vit import VisionTransformer

SAMPLE = 50  # pictures --compare takes out of a folder


@click.command()
@click.argument("model")
@click.argument("images", nargs=-1, required=True)
@click.option(
    "--method", "-m", multiple=True, default=["relevance"], show_default=True, help="A method, or all; repeat it."
)
@click.option(
    "--class", "target", metavar="CLASS", help="The class to explain, by number or label.  [default: the predicted]"
)
@click.option("--layer", type=int, help="For attention, mass, CAMs, pca and norms; -1 is the last.")
@click.option("--head", type=int, help="One head, by the number it was born with.")
@click.option("--query", metavar="ROW,COL", help="Look from this patch, for attention and rollout.")
@click.option("--option", "-o", "pairs", multiple=True, metavar="KEY=VALUE", help="Anything else a method takes.")
@click.option("--scores", is_flag=True, help="Measure how faithful each map is.")
@click.option("--compare", is_flag=True, help="Rank the methods on the pictures instead.")
@click.option("--sample", type=click.IntRange(min=2), default=SAMPLE, show_default=True, help="Pictures to compare on.")
@click.option("--format", "formats", default="png,json,html", show_default=True, help="Of png, svg, npz, json, html.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="A folder.  [default: runs/explain]")
@click.option("--strict", is_flag=True, help="Exit with 6 if a picture could not be read.")
@json_option
@config_options
def command(
    model: str,
    images: tuple[str, ...],
    method: tuple[str, ...],
    target: str | None,
    layer: int | None,
    head: int | None,
    query: str | None,
    pairs: tuple[str, ...],
    scores: bool,
    compare: bool,
    sample: int,
    formats: str,
    out: Path | None,
    strict: bool,
    as_json: bool,
    config: Path | None,
    assignments: tuple[str, ...],
    print_config: bool,
) -> None:
    """Show why a model answers as it does.

    MODEL is a checkpoint; IMAGES are files, folders or patterns. Each picture gets a page, an overlay per method and
    its numbers in the output folder. Which method to trust for this model: --compare.
    """
    from vitrail.cli.model_argument import model_from_arguments

    options = method_options(layer, head, query, pairs)
    settings, build = model_from_arguments(model, {}, config, assignments)
    if print_config:
        click.echo("\n".join(settings.lines()))
        return
    from vitrail.images.listing import list_inputs

    items = list_inputs(images).items
    if compare:
        if options or scores:
            raise UsageError("--compare takes no method options.", "Methods are compared as they are by default.", "")
        show_ranking(ranking(build(allocate=True), items, method, target, sample), as_json, out)
        return
    kept = tuple(part.strip() for part in formats.split(",") if part.strip())
    rows = list(explained_rows(build(allocate=True), items, method, target, scores, options, kept, out, quiet=as_json))
    if as_json:
        click.echo(json.dumps({"schema_version": 1, "images": rows}, indent=1))
    bad = sum(row["status"] == "error" for row in rows)
    if bad and strict:
        raise SomeInputsBad(f"{bad} of {len(rows)} pictures could not be read.", "All of them, with --strict.", "")


def explained_rows(
    model: VisionTransformer,
    items: Sequence[Any],
    method: Sequence[str],
    target: str | None,
    scores: bool,
    options: dict[str, Any],
    formats: Sequence[str],
    out: Path | None,
    quiet: bool,
) -> Iterator[dict[str, Any]]:
    """Explain, write and report every picture; one row each, also for those that cannot be read."""
    from vitrail.explain.explain import explain_files
    from vitrail.explain.methods import known_methods
    from vitrail.explain.save import check_formats
    from vitrail.runs.directory import next_free

    check_formats(formats)
    folder = out or next_free(Path("runs/explain"))
    one_by_one = scores or "occlusion" in known_methods(method)  # each picture takes hundreds of passes: show it soon
    results = explain_files(
        model, items, method, target=target, scores=scores, batch_size=1 if one_by_one else 8, **options
    )
    listed = sys.stdout.isatty() and not quiet  # the rows themselves tell how far it is
    with progress("pictures", quiet=listed) as told:
        told(0, len(items))
        for done, (file, result) in enumerate(results, 1):
            row = report(file, result, folder, formats)
            if not quiet:
                click.echo(spelled(row))
            told(done, len(items))
            yield row


def report(file: File, result: Explained | None, folder: Path, formats: Sequence[str]) -> dict[str, Any]:
    """Write one picture's files; its row."""
    from vitrail.explain.explain import name_of
    from vitrail.explain.save import as_data, save

    if result is None:
        assert file.error is not None
        return {"path": name_of(file), "status": "error", "error": file.error.row}
    stem = f"{file.index:04}-{re.sub(r'[^A-Za-z0-9._-]', '_', Path(result.name).stem)[:80]}"
    written = save(result, folder, stem, formats)
    data = as_data(result, values=False)
    del data["schema_version"]  # the document around the rows has it
    return {"path": data.pop("name"), "status": "ok", **data, "files": [str(path) for path in written]}


def spelled(row: dict[str, Any]) -> str:
    """A row as a line or two of text."""
    if row["status"] == "error":
        return f"{row['path']}: {row['error']}"
    answer = "features" if row["label"] is None else f"{row['label']} {row['confidence']:.1%}"
    page = next((path for path in row["files"] if path.endswith(".html")), row["files"][0] if row["files"] else "")
    measured = {name: view for name, view in row["views"].items() if "scores" in view}
    lines = [
        f"{scores_line(name, view['scores'])}, as a shuffled model's map: {view['agreement_with_shuffled']:+.2f}"
        for name, view in measured.items()
    ]
    if "random_order" in row:
        lines.append(scores_line("a random order", row["random_order"]))
    return "\n".join([f"{row['path']}: {answer} -> {page}", *lines])


def scores_line(name: str, scores: dict[str, float]) -> str:
    """One map's faithfulness."""
    return (
        f"  {name}: deletion {scores['deletion']:.3f}, insertion {scores['insertion']:.3f}, ROAD {scores['road']:+.3f}"
    )


def method_options(layer: int | None, head: int | None, query: str | None, pairs: Sequence[str]) -> dict[str, Any]:
    """Every option of a method that was given."""
    from vitrail.settings import parse_assignment

    given: dict[str, Any] = {"layer": layer, "head": head, "query": patch(query) if query else None}
    given = {name: value for name, value in given.items() if value is not None}
    for pair in pairs:
        if "=" not in pair:
            raise UsageError(
                f"--option {pair!r} sets nothing.", "Written as key=value.", "For example --option steps=64"
            )
    return given | dict(parse_assignment(pair) for pair in pairs)


def patch(query: str) -> tuple[int, int]:
    """A row and a column."""
    found = re.fullmatch(r"\s*(\d+)\s*,\s*(\d+)\s*", query)
    if not found:
        raise UsageError(f"--query is {query!r}.", "Row and column of a patch, from 0.", "For example --query 3,7")
    return int(found[1]), int(found[2])


def ranking(
    model: VisionTransformer, items: Sequence[Any], method: Sequence[str], target: str | None, sample: int
) -> list[Rank]:
    """Compare methods on an even sample of the pictures that can be read."""
    from vitrail.cli.pictures import even_sample, tensors
    from vitrail.explain.compare import compare

    images, _ = tensors(model, even_sample(items, sample), least=2)
    names = "all" if tuple(method) == ("relevance",) else method
    with progress("methods") as told:
        return compare(model, images, names, target=target, progress=told)


def show_ranking(ranks: list[Rank], as_json: bool, out: Path | None) -> None:
    """Best first; in a folder that was asked for, as ranking.json."""
    import msgspec

    rows = [{**msgspec.to_builtins(one), "verdict": one.verdict} for one in ranks]
    document = json.dumps({"schema_version": 1, "ranking": rows}, indent=1)
    if out:
        out.mkdir(parents=True, exist_ok=True)
        (out / "ranking.json").write_text(document)
    if as_json:
        click.echo(document)
        return
    click.echo(
        f"{'method':22} {'total, 95% interval':>26} {'deletion':>9} {'insertion':>9} {'ROAD':>7} {'s/picture':>9}"
        "  verdict"
    )
    for one in ranks:
        total = f"{one.total.mean:+.3f} [{one.total.low:+.3f}, {one.total.high:+.3f}]"
        click.echo(
            f"{one.method:22} {total:>26} {one.deletion.mean:9.3f} {one.insertion.mean:9.3f} {one.road.mean:+7.3f} "
            f"{one.seconds:9.3f}  {'the baseline' if one.method == 'random' else one.verdict}"
        )
