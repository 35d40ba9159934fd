"""vitrail convert: a checkpoint from one format to another, with a proof."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from vitrail.cli.options import json_option

if TYPE_CHECKING:
    from vitrail.checkpoint.report import ConversionReport

FORMATS = ("native", "huggingface", "google", "timm", "torchvision", "jeonsworld")


@click.command()
@click.argument("source")
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--to", type=click.Choice(FORMATS), default="native", show_default=True, help="The format to write.")
@click.option("--from-pickle", is_flag=True, help="Read a pickle, in a limited child process.")
@click.option("--rules", type=click.Path(path_type=Path, dir_okay=False), help="Read SOURCE by rules of your own.")
@click.option("--lossy", is_flag=True, help="Take out what the format cannot hold, instead of refusing.")
@click.option(
    "--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Say what SOURCE cannot, or ask for more."
)
@click.option("--allow-nonfinite", is_flag=True, help="Read weights that hold NaN or infinity.")
@json_option
def command(
    source: str,
    target: Path,
    to: str,
    from_pickle: bool,
    rules: Path | None,
    lossy: bool,
    assignments: tuple[str, ...],
    allow_nonfinite: bool,
    as_json: bool,
) -> None:
    """Convert a checkpoint and prove that nothing was lost.

    TARGET is a folder, or a file that ends in .npz or .safetensors. What was written is read again: every tensor is
    compared bit for bit, and the logits of both models on a fixed picture and on noise.
    """
    from vitrail.checkpoint import convert
    from vitrail.cli.fields import parse_fields
    from vitrail.cli.inspect import as_json_text

    report = convert(
        source,
        target,
        to,
        lossy=lossy,
        from_pickle=from_pickle,
        allow_nonfinite=allow_nonfinite,
        rules=rules,
        **parse_fields(assignments),
    )
    click.echo(as_json_text(report) if as_json else as_text(report))


def as_text(report: ConversionReport) -> str:
    """What was done and how it was proved."""
    lines = [
        f"{report.source.origin} -> {report.format}: {', '.join(report.files)}",
        f"tensors: {report.tensors_compared} compared, bit for bit {'equal' if report.tensors_equal else 'DIFFERENT'}",
        "logits:  " + ", ".join(f"{name} {value:.1e}" for name, value in report.logits_difference.items()),
    ]
    for title, entries in (
        ("assumed", report.source.assumptions),
        ("adapted", report.source.adaptations),
        ("left out", report.dropped),
        ("computed otherwise there", report.deviations),
    ):
        lines += [f"{title}:", *(f"  {entry}" for entry in entries)] if entries else []
    if report.native_logits_difference:
        worst = max(report.native_logits_difference.values())
        lines.append(f"  so its own software gives logits up to {worst:.1e} away; vitrail gives the same as before")
    return "\n".join(lines)
