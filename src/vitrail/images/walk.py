"""Walking through folders: every file, in order, without running in circles and without a silent omission."""

from __future__ import annotations

import glob
import os
import re
from collections import Counter
from collections.abc import Collection
from typing import TypeAlias

Identity: TypeAlias = tuple[int, int]  # of a folder, whatever name it is reached by

SYSTEM_FILES = {"__macosx", "thumbs.db", "ehthumbs.db", "desktop.ini"}
WILDCARDS = re.compile(r"\*\*/|\*\*|\*|\?|\[!?[^]]+]|.", re.DOTALL)


def walk(root: str, skipped: Counter[str], elsewhere: Collection[Identity] = ()) -> list[str]:
    """Every file below a folder, sorted. A folder is entered once, so links in circles come to an end.

    Nor is a folder entered that is listed `elsewhere`. One that may not be listed stays on the list itself, to become
    an error row.
    """
    files: list[str] = []
    folders, entered = [root], set(elsewhere)
    if elsewhere:
        entered.discard(identity(root))
    while folders:
        folder = folders.pop()
        try:
            if (known := identity(folder)) in entered:
                skipped["link to a folder listed already"] += 1
                continue
            entered.add(known)
            with os.scandir(folder) as entries:
                for entry in entries:
                    if kind := skipped_kind(entry.name):
                        skipped[kind] += 1
                    else:
                        (folders if _is_folder(entry) else files).append(entry.path)
        except OSError:
            files.append(folder)
    return sorted(files)


def identity(folder: str | os.PathLike[str]) -> Identity:
    """What two names of one folder have in common."""
    status = os.stat(folder)  # noqa: PTH116 (a Path per entry would double the time of a long listing)
    return status.st_dev, status.st_ino


def skipped_kind(name: str) -> str | None:
    """Why a file of this name is no picture of the user's: hidden, or left there by an operating system."""
    if name.startswith("."):
        return "hidden"
    return "system" if name.lower() in SYSTEM_FILES else None


def expand(argument: str) -> list[str]:
    """A pattern to the names it matches; anything that exists, or is no pattern, to itself."""
    if os.path.lexists(argument) or not glob.has_magic(argument):
        return [argument]
    if "**" not in argument:
        return sorted(glob.glob(argument))  # noqa: PTH207 (Path.glob cannot take an absolute pattern)
    # glob's own ** follows links in circles, so the folders are walked here.
    fixed = argument[: re.search(r"[*?\[]", argument).start()]  # type: ignore[union-attr]
    root = os.path.dirname(fixed)  # noqa: PTH120
    matches = _pattern(argument).fullmatch
    return [path for path in walk(root or ".", Counter()) if matches(path if root else path.removeprefix("./"))]


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads to itself: not a folder, and an error row later
        return False


def _pattern(argument: str) -> re.Pattern[str]:
    """`**/` is any number of folders, including none; every other wildcard stays within one name."""
    meaning = {"**/": "(?:[^/]+/)*", "**": ".*", "*": "[^/]*", "?": "[^/]"}

    def translate(token: str) -> str:
        if len(token) > 1 and token[0] == "[":
            return token.replace("\\", "\\\\").replace("[!", "[^")
        return meaning.get(token) or re.escape(token)

    return re.compile("".join(map(translate, WILDCARDS.findall(argument))), re.DOTALL)
