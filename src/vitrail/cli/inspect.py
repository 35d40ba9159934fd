"""vitrail inspect: what a checkpoint is, before anything is done with it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vitrail.cli.options import json_option

if TYPE_CHECKING:
    from vitrail.checkpoint.report import Report


@click.command()
@click.argument("path")
@click.option("--propose-rules", is_flag=True, help="Draft rules (TOML) for names no format has.")
@click.option("--rules", type=click.Path(path_type=Path, dir_okay=False), help="Read it by rules of your own.")
@click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Say what the file cannot.")
@click.option("--from-pickle", is_flag=True, help="Read a pickle, in a limited child process.")
@click.option("--allow-nonfinite", is_flag=True, help="Read weights that hold NaN or infinity.")
@json_option
def command(
    path: str,
    propose_rules: bool,
    rules: Path | None,
    assignments: tuple[str, ...],
    from_pickle: bool,
    allow_nonfinite: bool,
    as_json: bool,
) -> None:
    """Show what a checkpoint is.

    Origin, variant, grid, tokens, conventions, preprocessing, labels, and every assumption made. PATH is a file or a
    folder of weights, or hf:owner/name. Keys that do not add up are listed as problems, and the exit code is 4.
    """
    from vitrail.cli.fields import parse_fields

    if propose_rules:
        click.echo(draft(path, from_pickle, allow_nonfinite), nl=False)
        return
    from vitrail.checkpoint import inspect

    report = inspect(
        path,
        from_pickle=from_pickle,
        allow_nonfinite=allow_nonfinite,
        rules=rules,
        **parse_fields(assignments),
    )
    click.echo(as_json_text(report) if as_json else as_text(report))
    if report.problems:
        sys.exit(4)


def draft(path: str, from_pickle: bool, allow_nonfinite: bool) -> str:
    """Rules for the tensors at `path`, drafted from their names and shapes."""
    from vitrail.checkpoint.files import find
    from vitrail.checkpoint.propose import propose_rules

    return propose_rules(find(path, from_pickle=from_pickle, allow_nonfinite=allow_nonfinite).tensors)


def as_json_text(record: object) -> str:
    """A report as one JSON document."""
    import msgspec

    document = {"schema_version": 1} | msgspec.to_builtins(record)
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()


def as_text(report: Report) -> str:
    """A report for people: one fact to a line, then what was assumed, changed and found wrong."""
    lines = [f"{name + ':':14} {value}" for name, value in facts(report).items() if value]
    sections = {
        "assumed": report.assumptions,
        "adapted": report.adaptations,
        "kept, used by no model here": report.kept,
        "ignored": [f"{key}: {what}" for key, what in report.ignored.items()],
        "PROBLEMS": report.problems,
    }
    for title, entries in sections.items():
        if entries:
            lines += ["", f"{title}:", *(f"  {entry}" for entry in entries)]
    return "\n".join(lines)


def facts(report: Report) -> dict[str, str]:
    """The short facts of a report, in words."""
    known = {
        "path": report.path,
        "origin": f"{report.origin}, read by '{report.table}'"
        + (f" behind {report.prefix!r}" if report.prefix else ""),
        "tensors": f"{report.tensors} of {report.dtype}",
    }
    if not report.config:
        return known
    prepared = report.preprocess
    shown = ", ".join(report.labels[:5]) + (" …" if len(report.labels) > 5 else "")
    return known | {
        "variant": report.variant or "",
        "model": report.architecture,
        "parameters": f"{report.parameters:,}",
        "pictures": f"{spelled(report.image_size)} px, patches of {spelled(report.patch_size)}",
        "grid": f"{spelled(report.grid)} patches behind {', '.join(report.prefix_tokens) or 'no other token'}",
        "conventions": ", ".join(f"{name} {value}" for name, value in report.conventions.items()),
        "preprocessing": f"resize {prepared.resize}, {prepared.interpolation}, crop {prepared.center_crop}, "
        f"mean {prepared.mean}, std {prepared.std}"
        if prepared
        else "",
        "labels": f"{len(report.labels)}: {shown}" if report.labels else "no classifier",
    }


def spelled(size: tuple[int, int]) -> str:
    """224 x 224."""
    return f"{size[0]} x {size[1]}"
