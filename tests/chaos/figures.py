"""What the chaos tests measured, one line each, in the file VITRAIL_CHAOS_FIGURES names."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def report(what: str, **figures: Any) -> None:
    """Add a line."""
    target = os.environ.get("VITRAIL_CHAOS_FIGURES")
    if target:
        with Path(target).open("a") as file:
            file.write(json.dumps({"what": what, **figures}) + "\n")
