"""vitrail doctor: what this machine is, what works on it, what to do about the rest."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from vitrail.cli.options import json_option

if TYPE_CHECKING:
    from vitrail.doctor.report import Attempt, Diagnosis, Extra, Finding, Machine, Place

BROKEN = 5  # the environment is at fault (errors.py)


@click.command()
@click.option("--engines", is_flag=True, help="Try every engine on a tiny model, too; takes some seconds.")
@json_option
def command(engines: bool, as_json: bool) -> None:
    """Say what this machine is, what works on it, and what to do about the rest.

    Looks, and changes nothing. Exit code 0 where nothing stands in the way, hints or not; 5 where something does.
    """
    from vitrail.cli.progress import progress
    from vitrail.doctor.examine import doctor

    with progress("engines", quiet=as_json) as shown:
        found = doctor(engines=engines, progress=shown)
    click.echo(as_json_text(found) if as_json else "\n".join(lines(found)))
    if found.problems:
        sys.exit(BROKEN)


def as_json_text(found: Diagnosis) -> str:
    """Everything, as one JSON document."""
    import msgspec

    document = {"schema_version": 1, "healthy": not found.problems} | msgspec.to_builtins(found)
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()


def lines(found: Diagnosis) -> Iterator[str]:
    """Everything, for people."""
    yield f"vitrail {found.vitrail}, Python {found.python}, {found.machine.system}"
    sections = {
        "machine": machine(found.machine),
        "libraries": [(one.name, one.installed or f"missing ({one.wanted})") for one in found.packages],
        "extras": [(one.name, extra(one)) for one in found.extras],
        "engines": [(one.engine, engine(one)) for one in found.engines] or [("not tried", "vitrail doctor --engines")],
        "folders": [(one.use, place(one)) for one in found.places],
        "environment": [(one.name, f"{one.value}: {one.effect}") for one in found.environment]
        or [("nothing set", "that vitrail heeds; no settings are read from hidden files either")],
    }
    for title, rows in sections.items():
        yield f"\n{title}"
        width = max(16, *(len(name) for name, _ in rows))
        yield from (f"  {name:{width}}  {text}" for name, text in rows)
    yield from advice(found.findings)


def machine(found: Machine) -> list[tuple[str, str]]:
    """The machine in a few lines."""
    cores = f"{found.cores}" + (f", of which a container allows {found.quota:g}" if found.quota is not None else "")
    free = f", {size(found.free_memory)} free" if found.free_memory is not None else ""
    return [
        ("processor", ": ".join(filter(None, [found.processor, ", ".join(found.abilities)]))),
        ("cores", cores),
        ("memory", f"{size(found.memory)}{free}"),
        ("GPU", ", ".join(found.gpus) or "none to be seen"),
    ]


def extra(found: Extra) -> str:
    """Here or not, and what for."""
    if found.present:
        return f"here: {found.gives} ({', '.join(f'{one.name} {one.installed}' for one in found.packages)})"
    gone = ", ".join(one.name for one in found.packages if not one.fits)
    return f"not here: {found.gives} (lacks {gone}; pip install 'vitrail[{found.name}]')"


def engine(tried: Attempt) -> str:
    """Whether it works, how near, how quick."""
    if not tried.works:
        return f"{tried.precision}: does not work ({tried.reason})"
    return f"{tried.precision}: works, logits within {tried.error:.0e}, {tried.milliseconds:.2f} ms a tiny picture"


def place(found: Place) -> str:
    """A folder, how much is in it, how much fits."""
    used = f"{size(found.used)} used, " if found.used is not None else ""
    return f"{found.path} ({used}{size(found.free)} free{'' if found.writable else ', cannot be written to'})"


def size(count: int | None) -> str:
    """Bytes, in words."""
    if count is None:
        return "unknown"
    return f"{count / 2**30:.1f} GB" if count >= 2**30 else f"{count / 2**20:.1f} MB"


def advice(findings: tuple[Finding, ...]) -> Iterator[str]:
    """What was found, what was expected, what to do; problems before hints."""
    if not findings:
        yield "\nNothing stands in the way."
    for finding in sorted(findings, key=lambda finding: finding.severity != "problem"):
        yield f"\n{finding.severity.upper()}: {finding.found}\n  {finding.expected}\n  {finding.fix}"
