"""vitrail recipe: the trainings that come with vitrail, each with the command that runs it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vitrail.cli.options import json_option
from vitrail.errors import UsageError

if TYPE_CHECKING:
    from vitrail.recipe import Recipe


@click.command()
@click.argument("name", required=False)
@click.option("--toml", "as_toml", is_flag=True, help="Print the recipe itself, to change and to keep.")
@json_option
def command(name: str | None, as_toml: bool, as_json: bool) -> None:
    """List the recipes that come with vitrail, or show one.

    A recipe is a config for vitrail train with its command, its cost and its result.
    """
    from vitrail.recipe import recipe, recipes

    if as_toml and not name:
        raise UsageError("--toml prints one recipe.", "A NAME before it.", "vitrail recipe lists the names.")
    if name is None:
        found = recipes()
        click.echo(as_json_text({"recipes": [data(one) for one in found]}) if as_json else listed(found))
        return
    one = recipe(name)
    if as_toml:
        click.echo(Path(one.path).read_text(encoding="utf-8"), nl=False)
    else:
        click.echo(as_json_text(data(one)) if as_json else shown(one))


def data(one: Recipe) -> dict[str, object]:
    """A recipe for the JSON document."""
    import msgspec

    fields: dict[str, object] = msgspec.to_builtins(one)
    return fields


def as_json_text(document: dict[str, object]) -> str:
    """One JSON document."""
    return json.dumps({"schema_version": 1} | document, indent=2, ensure_ascii=False)


def listed(found: Sequence[Recipe]) -> str:
    """One to a line."""
    width = max((len(one.name) for one in found), default=0)
    return "\n".join([*(f"{one.name:{width}}  {one.title}" for one in found), "", "vitrail recipe NAME shows one."])


def shown(one: Recipe) -> str:
    """What it is, what it takes, and what to type."""
    facts = [f"  {name + ':':9} {text}" for name, text in one.facts.items()]
    return "\n".join([f"{one.name}: {one.title}" if one.title else one.name, *facts, "", one.command])
