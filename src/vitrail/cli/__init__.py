"""The command line: a table of commands, each in a file of its own that is imported only when it runs."""

from __future__ import annotations

import errno
import importlib
import os
import sys
import traceback
from typing import Any

import click

from vitrail import __version__
from vitrail.errors import EnvironmentProblem, VitrailError

# name: (module, what `vitrail --help` says). A test compares these sentences with the commands' own.
COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("vitrail.cli.demo", "Train, measure, predict and explain, in about a minute."),
    "train": ("vitrail.cli.train", "Train a model on a folder of pictures."),
    "evaluate": ("vitrail.cli.evaluate", "Measure a model on labelled pictures."),
    "predict": ("vitrail.cli.predict", "Name what is in pictures."),
    "embed": ("vitrail.cli.embed", "Turn pictures into features."),
    "data": ("vitrail.cli.data", "Look into a data set before anything is learnt from it."),
    "trace": ("vitrail.cli.trace", "Walk a picture through a model, stage by stage."),
    "inspect": ("vitrail.cli.inspect", "Show what a checkpoint is."),
    "convert": ("vitrail.cli.convert", "Convert a checkpoint and prove that nothing was lost."),
    "explain": ("vitrail.cli.explain", "Show why a model answers as it does."),
    "figures": ("vitrail.cli.figures", "Draw the paper's figures for a checkpoint."),
    "prune": ("vitrail.cli.prune", "Take out the heads a model misses least."),
    "recipe": ("vitrail.cli.recipe", "List the recipes that come with vitrail, or show one."),
    "models": ("vitrail.cli.models", "List the models that can be created by name."),
    "doctor": ("vitrail.cli.doctor", "Say what this machine is, what works on it, and what to do about the rest."),
    "completion": ("vitrail.cli.completion", "Print the shell completion script for bash, zsh or fish."),
}


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports one when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(COMMANDS[name][0]).command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from vitrail.errors import UsageError, did_you_mean

            raise UsageError(
                f"vitrail has no command {args[0]!r}.", did_you_mean(args[0], COMMANDS), "See vitrail --help."
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="vitrail")
@click.option("--verbose", is_flag=True, help="On an error, show the traceback too.")
def vitrail(verbose: bool) -> None:
    """Vision Transformers: create, look inside, train, measure, explain, serve."""


def main() -> None:
    """Run the command line; every error of ours is three short lines and an exit code (errors.py)."""
    arguments = [word for word in sys.argv[1:] if word != "--verbose"]  # wherever on the line it was typed
    verbose = len(arguments) < len(sys.argv) - 1
    try:
        sys.exit(vitrail.main(arguments, standalone_mode=False) or 0)
    except VitrailError as error:
        _fail(error, error.exit_code, verbose)
    except click.exceptions.Abort:
        _fail("Interrupted.", 130, verbose=False)
    except click.ClickException as error:
        _fail(_usage(error), error.exit_code, verbose)
    except BrokenPipeError:  # `vitrail ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except (MemoryError, OSError, RuntimeError) as error:  # torch says in a RuntimeError that memory ran out
        problem = environment_problem(error)
        if problem is None:
            raise
        _fail(problem, problem.exit_code, verbose)


def environment_problem(error: Exception) -> EnvironmentProblem | None:
    """What the machine lacked, where that is what went wrong and nobody nearer said so."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        place = f" {error.filename}" if error.filename else ""
        return EnvironmentProblem(
            f"There is no room to write{place} ({error.strerror}).",
            "A disk, and a quota, with room for the results.",
            "Free some space, or name another place with --out.",
        )
    said = (str(error) or "Memory ran out").splitlines()[0]
    if isinstance(error, MemoryError) or any(words in said.lower() for words in OUT_OF_MEMORY):
        fix = "Use a smaller batch, picture or model."
        return EnvironmentProblem("The machine has not enough memory for this.", said, fix)
    return None


OUT_OF_MEMORY = ("can't allocate memory", "out of memory", "not enough memory")


def _usage(error: click.ClickException) -> str:
    context: Any = getattr(error, "ctx", None)
    hint = f"\nSee {context.command_path} --help." if context else ""
    return error.format_message() + hint


def _fail(error: VitrailError | str, code: int, verbose: bool) -> None:
    if verbose:
        traceback.print_exc()
    click.echo(f"vitrail: {error}", err=True)
    sys.exit(code)
