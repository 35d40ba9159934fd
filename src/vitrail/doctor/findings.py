"""What is known to go wrong, how it shows here, and what to do about it."""

from __future__ import annotations

import os
import platform
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from vitrail.doctor.report import Attempt, Extra, Finding, Machine, Package, Place

LITTLE_ROOM = 2 * 2**30  # a B/16 in training, with its moments and two checkpoints, takes about that
LITTLE_MEMORY = 2 * 2**30  # loading and running a B/16
CODECS = {"jpg": "JPEG", "zlib": "PNG", "webp": "WebP", "littlecms2": "colour profiles"}  # Pillow's name: ours


def problem(found: str, expected: str, fix: str) -> Finding:
    """Something that stops a command."""
    return Finding(severity="problem", found=found, expected=expected, fix=fix)


def hint(found: str, expected: str, fix: str) -> Finding:
    """Something that costs time or comfort."""
    return Finding(severity="hint", found=found, expected=expected, fix=fix)


def of_packages(needed: Sequence[Package], extras: Sequence[Extra]) -> Iterator[Finding]:
    """Libraries that are missing, or of a version vitrail was not made for."""
    for package in needed:
        if not package.fits:
            has = f"{package.name} {package.installed}" if package.installed else f"no {package.name}"
            yield problem(f"There is {has}.", f"{package.name}{package.wanted}.", f"pip install {asked(package)}")
    for extra in extras:
        for package in extra.packages:
            if package.installed and not package.fits:
                wanted = f"{extra.name} ({extra.gives}) takes {package.name}{package.wanted}."
                yield hint(f"There is {package.name} {package.installed}.", wanted, f"pip install {asked(package)}")
    if not needed:
        expected = "Its package metadata says what it needs; without, that is not checked."
        yield hint("vitrail runs without being installed.", expected, "pip install -e . in its folder.")


def asked(package: Package) -> str:
    """As pip takes it."""
    return f"'{package.name}{package.wanted}'"


def of_pictures() -> Iterator[Finding]:
    """Kinds of pictures this build of Pillow cannot read."""
    from PIL import features

    for name, called in CODECS.items():
        if not features.check(name):
            yield hint(f"This Pillow was built without {called}.", "Its wheels have it.", "pip install -U pillow")


def of_machine(machine: Machine, torch: str | None, environment: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """A machine that is slower than it looks."""
    if machine.quota is not None and machine.quota < machine.cores:
        yield hint(
            f"This container may keep {machine.quota:g} of {machine.cores} cores busy.",
            "torch starts a thread for every core it sees; too many take turns and wait for each other.",
            f"export OMP_NUM_THREADS={max(1, round(machine.quota))}",
        )
    threads = environment.get("OMP_NUM_THREADS", "")
    if threads.isdecimal() and int(threads) < machine.cores and machine.quota is None:
        yield hint(f"OMP_NUM_THREADS is {threads}.", f"There are {machine.cores} cores.", "unset OMP_NUM_THREADS")
    if machine.gpus and torch and torch.endswith("+cpu"):
        yield hint(
            f"There is a GPU ({machine.gpus[0]}), and torch {torch} cannot use it.",
            "A build of torch for it.",
            "Install torch as its own site says for this system, then vitrail.",
        )
    if platform.machine() in ("x86_64", "AMD64") and machine.abilities and "AVX2" not in machine.abilities:
        yield hint("This processor has no AVX2.", "Every engine here is made for it.", "Expect a tenth of the speed.")
    if machine.free_memory is not None and machine.free_memory < LITTLE_MEMORY:
        free = f"{machine.free_memory / 2**30:.1f} GB of memory are free."
        yield hint(free, "About 2 GB to run B/16.", "Stop something else, or use a smaller model.")


def of_places(places: Sequence[Place]) -> Iterator[Finding]:
    """Folders that cannot be written to, are nearly full, or are not to be trusted."""
    for place in places:
        if not place.writable:
            yield problem(
                f"{place.path} ({place.use}) cannot be written to.", "A folder of your own.", remedy(place.use)
            )
        elif place.free is not None and place.free < LITTLE_ROOM:
            free = f"{place.free / 2**30:.1f} GB are free for {place.use} ({place.path})."
            yield hint(free, "A run of B/16 takes about 2 GB.", remedy(place.use))
    yield from of_cache(next(place for place in places if place.use == "cache"))


def of_cache(cache: Place) -> Iterator[Finding]:
    """Compiled engines are code: a folder that others may write to is not used (engines/cache.py)."""
    folder = Path(cache.path) / "engines"
    if os.name != "posix" or not folder.is_dir():
        return
    state = folder.stat()
    if state.st_uid != os.geteuid() or state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        yield hint(
            f"{folder} is not yours alone, so compiled engines are not kept in it.",
            "A folder only you can write to: what is in it is run.",
            f"chmod go-w '{folder}', or name another in VITRAIL_CACHE.",
        )


def remedy(use: str) -> str:
    """How to put it elsewhere."""
    return {
        "runs": "Name another place with --out.",
        "cache": "Name another folder in VITRAIL_CACHE; everything in the cache may be deleted.",
    }.get(use, "Name another folder in TMPDIR.")


def of_engines(attempts: Sequence[Attempt], extras: Sequence[Extra]) -> Iterator[Finding]:
    """Engines that are installed and do not work. Without torch nothing loads; the others only cost speed."""
    absent = {package.name for extra in extras for package in extra.packages if package.installed is None}
    for attempt in attempts:
        if attempt.works or attempt.engine in absent:
            continue
        tell = problem if attempt.engine == "torch" and attempt.precision == "exact" else hint
        yield tell(
            f"The engine {attempt.engine} ({attempt.precision}) does not work here: {attempt.reason}.",
            "The model's own answers on a tiny model.",
            "Install it again; vitrail uses the others meanwhile."
            if attempt.engine != "torch"
            else "Install torch again.",
        )
