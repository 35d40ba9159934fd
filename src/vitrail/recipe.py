"""The recipes that come with vitrail: configs of whole trainings, each with its command, its cost and its result.

A recipe is a TOML file for `vitrail train --config`. The comment it begins with is read here:

    # One sentence: what is trained, on what.
    #
    # command: vitrail train DATA --config recipes/cats-dogs.toml
    # data:    where DATA comes from
    # time:    what it takes, and on what machine
    # result:  what came of it when it was run
"""

from __future__ import annotations

import itertools
import os
import re
from pathlib import Path

from vitrail.config import Frozen
from vitrail.errors import EnvironmentProblem, UsageError, did_you_mean

PACKAGED = Path(__file__).parent / "recipes"  # in an installed package
CHECKOUT = Path(__file__).parents[2] / "recipes"  # beside src/, where they are written


class Recipe(Frozen, frozen=True, kw_only=True):
    """What a recipe's file says about itself."""

    name: str
    title: str
    command: str  # ready to run, but for DATA
    facts: dict[str, str]  # data, time, result ...
    path: str


def recipes() -> list[Recipe]:
    """All of them, by name."""
    return [read(path) for path in sorted(folder().glob("*.toml"))]


def recipe(name: str) -> Recipe:
    """One of them."""
    path = folder() / f"{name}.toml"
    known = [file.stem for file in sorted(folder().glob("*.toml"))]
    if name not in known:
        raise UsageError(f"There is no recipe {name!r}.", did_you_mean(name, known), "vitrail recipe lists them.")
    return read(path)


def folder() -> Path:
    """Where they are."""
    found = next((place for place in (PACKAGED, CHECKOUT) if place.is_dir()), None)
    if found is None:
        raise EnvironmentProblem(
            "This copy of vitrail came without its recipes.", f"TOML files in {PACKAGED}.", "Install vitrail again."
        )
    return found


def read(path: Path) -> Recipe:
    """A recipe's opening comment, as fields."""
    lines = path.read_text(encoding="utf-8").splitlines()
    comment = [line.lstrip("#").strip() for line in itertools.takewhile(lambda line: line.startswith("#"), lines)]
    title = list(itertools.takewhile(lambda line: line and not fact(line), comment))
    facts: dict[str, str] = {}
    for line in comment[len(title) :]:
        found = fact(line)
        if found:
            facts[found[1]] = found[2]
        elif line and facts:  # a fact may go on in the next line
            facts[next(reversed(facts))] += f" {line}"
    command = facts.pop("command", f"vitrail train DATA --config recipes/{path.name}")
    command = command.replace(f"recipes/{path.name}", from_here(path))
    return Recipe(name=path.stem, title=" ".join(title), command=command, facts=facts, path=str(path))


def fact(line: str) -> re.Match[str] | None:
    """`time: an hour`, and not a sentence that has a colon in it."""
    return re.fullmatch(r"([a-z]+):\s+(.+)", line)


def from_here(path: Path) -> str:
    """A path as one would type it: relative where it is below, quoted where it has to be."""
    here = Path.cwd()
    shown = path.relative_to(here) if path.is_relative_to(here) else path
    return f"'{shown}'" if re.search(r"[^\w./-]", os.fspath(shown)) else os.fspath(shown)
