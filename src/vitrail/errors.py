"""Everything vitrail raises on purpose.

    VitrailError                    exit code
    ├── UsageError                  2   wrong command line, wrong argument
    │   └── ConfigError             2   a config value that cannot work
    ├── DataError                   3   pictures or labels that cannot be used
    ├── CheckpointError             4   weights that cannot be read, trusted or matched
    ├── EnvironmentProblem          5   disk full, out of memory, a missing extra
    └── SomeInputsBad               6   the run finished, but not every input was good (--strict)

Every error is three short parts: what was found, what was expected, what to do.
Anything else that escapes is a bug of ours (exit code 1).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class VitrailError(Exception):
    """Base of the tree; never raised itself."""

    exit_code = 1

    def __init__(self, found: str, expected: str = "", fix: str = "") -> None:
        super().__init__("\n".join(part for part in (found, expected, fix) if part))
        self.found, self.expected, self.fix = found, expected, fix

    def __reduce__(self) -> tuple[type[VitrailError], tuple[str, str, str]]:
        # The default would replay the joined message as `found` when a worker process sends us back.
        return type(self), (self.found, self.expected, self.fix)


class UsageError(VitrailError):
    """Wrong command line, wrong argument."""

    exit_code = 2


class ConfigError(UsageError):
    """A config value that cannot work."""


class DataError(VitrailError):
    """Pictures or labels that cannot be used."""

    exit_code = 3


class CheckpointError(VitrailError):
    """Weights that cannot be read, trusted or matched."""

    exit_code = 4


class EnvironmentProblem(VitrailError):
    """The machine cannot: disk full, out of memory, a missing extra."""

    exit_code = 5


class SomeInputsBad(VitrailError):
    """The run finished, but not every input was good."""

    exit_code = 6


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A sentence that points at the nearest known words, or at all of them when none is near."""
    known = list(known)
    near = [name for name in known if _is_another_way_to_say(word, name)]
    near = near or difflib.get_close_matches(word, known, n=3, cutoff=0.6)
    if near:
        return f"Did you mean {' or '.join(near)}?"
    if len(known) > MANY:  # of the settings of a command, say, only which kinds there are
        known = list({f"{name.partition('.')[0]}.*" if "." in name else name for name in known})
    return f"Known: {', '.join(sorted(known))}."


MANY = 30


def _is_another_way_to_say(word: str, name: str) -> bool:
    """B/16 as b/16, train.lr as lr or as train.learning_rate."""
    (section, _, said), (family, _, meant) = word.rpartition("."), name.rpartition(".")
    if section not in ("", family):
        return False
    return word.lower() == name.lower() or said == meant or meant == _initials(said) or said == _initials(meant)


def _initials(name: str) -> str:
    parts = name.split("_")
    return "".join(part[:1] for part in parts) if len(parts) > 1 else name
