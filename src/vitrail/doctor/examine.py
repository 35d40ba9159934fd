"""vitrail.doctor: look at the machine, the libraries, the folders and the environment; say what to do."""

from __future__ import annotations

import platform
from collections.abc import Callable

from vitrail import __version__
from vitrail.doctor import findings
from vitrail.doctor.machine import this_machine
from vitrail.doctor.packages import extras, needed
from vitrail.doctor.places import places
from vitrail.doctor.report import Attempt, Diagnosis
from vitrail.doctor.variables import impossible, misspelt, variables
from vitrail.engines.base import HOMES


def doctor(*, engines: bool = False, progress: Callable[[int, int], None] = lambda done, total: None) -> Diagnosis:
    """What this machine is and what of vitrail works on it.

    `engines` runs each of them on a tiny model, some seconds each; without, nothing heavy is imported.
    """
    machine, packages, optional, folders = this_machine(), needed(), extras(), places()
    tried = try_engines(progress) if engines else ()
    torch = next((package.installed for package in packages if package.name == "torch"), None)
    return Diagnosis(
        vitrail=__version__,
        python=platform.python_version(),
        machine=machine,
        packages=packages,
        extras=optional,
        places=folders,
        environment=variables(),
        engines=tried,
        findings=(
            *findings.of_packages(packages, optional),
            *findings.of_pictures(),
            *findings.of_machine(machine, torch),
            *findings.of_places(folders),
            *misspelt(),
            *impossible(),
            *findings.of_engines(tried, optional),
        ),
    )


def try_engines(progress: Callable[[int, int], None]) -> tuple[Attempt, ...]:
    """Every engine, one after the other."""
    from vitrail.doctor.engines import in_a_child

    tried: list[Attempt] = []
    for done, name in enumerate(HOMES):
        progress(done, len(HOMES))
        tried += in_a_child(name)
    return tuple(tried)
