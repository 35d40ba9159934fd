"""What the doctor writes down. Plain records: they print, and they are the JSON document."""

from __future__ import annotations

from typing import Literal

from vitrail.config import Frozen


class Machine(Frozen, frozen=True, kw_only=True):
    """What computes. Memory is in bytes."""

    system: str
    processor: str
    abilities: tuple[str, ...]  # instructions that make a model quick
    cores: int  # this process may run on
    quota: float | None  # cores a container may keep busy; None: all of them
    memory: int | None
    free_memory: int | None  # what a container leaves of it, too
    gpus: tuple[str, ...]


class Package(Frozen, frozen=True, kw_only=True):
    """A library vitrail stands on."""

    name: str
    wanted: str  # ">=2.10"
    installed: str | None
    fits: bool


class Extra(Frozen, frozen=True, kw_only=True):
    """A group of optional libraries, and what they add."""

    name: str
    gives: str
    packages: tuple[Package, ...]

    @property
    def present(self) -> bool:
        """Whether all of them are here."""
        return all(package.fits for package in self.packages)


class Place(Frozen, frozen=True, kw_only=True):
    """A folder that vitrail writes to. Sizes in bytes."""

    use: str
    path: str
    writable: bool
    free: int | None
    used: int | None = None  # only of the cache, which is ours


class Variable(Frozen, frozen=True, kw_only=True):
    """A variable of the environment that changes what vitrail does."""

    name: str
    value: str
    effect: str


class Attempt(Frozen, frozen=True, kw_only=True):
    """One engine, tried on a tiny model: its answers beside those of the model itself."""

    engine: str
    precision: str
    works: bool
    error: float | None = None  # of a logit, at most
    milliseconds: float | None = None  # a picture
    reason: str = ""


class Finding(Frozen, frozen=True, kw_only=True):
    """Something to know: a problem stops some command, a hint only costs time or comfort."""

    severity: Literal["problem", "hint"]
    found: str
    expected: str
    fix: str


class Diagnosis(Frozen, frozen=True, kw_only=True):
    """All of it."""

    vitrail: str
    python: str
    machine: Machine
    packages: tuple[Package, ...]
    extras: tuple[Extra, ...]
    places: tuple[Place, ...]
    environment: tuple[Variable, ...]
    engines: tuple[Attempt, ...]  # empty where they were not tried
    findings: tuple[Finding, ...]

    @property
    def problems(self) -> tuple[Finding, ...]:
        """The findings that stop something."""
        return tuple(finding for finding in self.findings if finding.severity == "problem")
