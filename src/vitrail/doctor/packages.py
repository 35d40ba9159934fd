"""What is installed, against what vitrail's own package metadata asks for. Nothing is imported to find out."""

from __future__ import annotations

from importlib import metadata

from packaging.requirements import Requirement
from packaging.version import InvalidVersion

from vitrail.doctor.report import Extra, Package

# What each extra gives; a test compares the names with pyproject.toml.
GIVES = {
    "hub": "models by hf:owner/name",
    "fast": "OpenVINO and ONNX Runtime, quicker than torch on a CPU",
    "parquet": "Parquet manifests and predictions",
    "scientific": "TIFF and 16-bit pictures of any number of channels",
    "track": "TensorBoard while training",
}
FOR_DEVELOPERS = ("dev", "all")


def needed() -> tuple[Package, ...]:
    """The libraries vitrail cannot do without."""
    return tuple(package(one) for one in requirements() if one.marker is None or one.marker.evaluate({"extra": ""}))


def extras() -> tuple[Extra, ...]:
    """The optional ones, by the name they are installed under."""
    return tuple(Extra(name=name, gives=GIVES.get(name, ""), packages=of_extra(name)) for name in names_of_extras())


def names_of_extras() -> list[str]:
    """As declared, without those for developers."""
    declared = metadata.metadata("vitrail").get_all("Provides-Extra") or [] if requirements() else []
    return [name for name in declared if name not in FOR_DEVELOPERS]


def of_extra(name: str) -> tuple[Package, ...]:
    """The libraries one extra brings that vitrail does not have anyway."""
    return tuple(
        package(one)
        for one in requirements()
        if one.marker and one.marker.evaluate({"extra": name}) and not one.marker.evaluate({"extra": ""})
    )


def requirements() -> list[Requirement]:
    """Everything vitrail's package asks for; nothing where it runs without being installed."""
    try:
        asked = metadata.requires("vitrail") or []
    except metadata.PackageNotFoundError:
        return []
    return [one for one in map(Requirement, asked) if one.name != "vitrail"]


def package(asked: Requirement) -> Package:
    """One library, as asked for and as it is."""
    try:
        installed = metadata.version(asked.name)
    except metadata.PackageNotFoundError:
        return Package(name=asked.name, wanted=str(asked.specifier), installed=None, fits=False)
    try:
        fits = asked.specifier.contains(installed, prereleases=True)
    except InvalidVersion:  # a version somebody made up: theirs to know
        fits = True
    return Package(name=asked.name, wanted=str(asked.specifier), installed=installed, fits=fits)
