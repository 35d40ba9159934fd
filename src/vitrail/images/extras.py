"""Libraries that only some pictures and tables need; asked for when such a file is met."""

from __future__ import annotations

import importlib
from typing import Any

from vitrail.errors import EnvironmentProblem

INSTALL = {"tifffile": "scientific", "imagecodecs": "scientific", "pyarrow": "parquet"}


def extra(module: str, purpose: str) -> Any:
    """The module, or an error with the command that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        library = module.partition(".")[0]
        raise EnvironmentProblem(
            f"{library} is not installed.", f"It reads {purpose}.", f"pip install 'vitrail[{INSTALL[library]}]'"
        ) from None
