"""vitrail models: what can be created by name."""

from __future__ import annotations

import json

import click

from vitrail.cli.options import json_option


@click.command()
@json_option
def command(as_json: bool) -> None:
    """List the models that can be created by name.

    Any patch size works ("B/8", "S/32"), and so do the names timm, Hugging Face and torchvision give the same shapes.
    """
    from vitrail.model.variants import named_models

    rows = named_models()
    if as_json:
        click.echo(json.dumps({"schema_version": 1, "models": rows}, indent=2))
        return
    click.echo(f"{'name':10} {'width':>6} {'blocks':>6} {'heads':>6} {'MLP':>6} {'grid':>8} {'parameters':>14}")
    for row in rows:
        grid = "x".join(map(str, row["grid"]))
        click.echo(
            f"{row['name']:10} {row['hidden_size']:6} {row['num_hidden_layers']:6} {row['num_attention_heads']:6} "
            f"{row['intermediate_size']:6} {grid:>8} {row['parameters']:14,}"
        )
    click.echo("\nWith a 1000-class head, at 224 x 224 pixels. `vitrail trace NAME` shows one stage by stage.")
