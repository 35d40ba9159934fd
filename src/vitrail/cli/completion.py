"""vitrail completion: print a script the shell can source."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the shell completion script for bash, zsh or fish.

    For example: vitrail completion bash >> ~/.bashrc
    """
    from vitrail.cli import vitrail

    completion = get_completion_class(shell)
    assert completion is not None  # click.Choice let only known shells through
    click.echo(completion(vitrail, {}, "vitrail", "_VITRAIL_COMPLETE").source())
