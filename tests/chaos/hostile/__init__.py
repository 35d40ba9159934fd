"""Files made to do harm, or only wrong, and what each must meet: a refusal that names the file and the reason.

Every module here holds CASES. A case writes one small file (or folder) and says through which door it comes in:
`read` (a weight file), `pickled` (a pickle the user asked for), `json` (a config file), `load` (a model).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

CANARY = "CANARY"  # the file, in the folder of a case, that exists when something was executed


@dataclass(frozen=True)
class Case:
    """One hostile file."""

    group: str
    name: str
    door: str
    build: Callable[[Path], Path]  # writes into the folder and returns what is to be opened
    reason: str  # a regular expression the message must match
    tensor: str = ""  # the tensor the message must name


def every_case() -> list[Case]:
    """All of them, in a fixed order."""
    from hostile import archives, configs, npz, pickles, safetensors_files, wrong

    cases = [case for module in (pickles, npz, safetensors_files, configs, archives, wrong) for case in module.CASES]
    assert len({(case.group, case.name, case.door) for case in cases}) == len(cases)
    return cases
