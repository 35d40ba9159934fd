"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def config_options(command: Command) -> Command:
    """--config, --set and --print-config: everything a command has no flag for."""
    command = click.option("--print-config", is_flag=True, help="Show each setting and where it came from, then stop.")(
        command
    )
    command = click.option(
        "--set", "assignments", multiple=True, metavar="KEY=VALUE", help="One setting of those --print-config shows."
    )(command)
    return click.option(
        "--config", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE.toml", help="Settings from a file."
    )(command)


def json_option(command: Command) -> Command:
    """--json: the result as one JSON document on stdout."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of a table.")(command)
