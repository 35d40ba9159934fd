"""OpenVINO, imported without its conversion tools."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

from vitrail.engines.base import extra

TOOLS = "openvino.tools.ovc"


def runtime() -> Any:
    """The openvino module. Its tools stay out: they take half the import's time, and they carry the telemetry."""
    loaded = sys.modules.get("openvino")
    if loaded is not None:
        return loaded
    sys.modules[TOOLS] = None  # type: ignore[assignment]  # makes `from openvino.tools.ovc import` an ImportError
    try:
        import openvino
    except ImportError as error:
        raise extra("openvino", error) from error
    finally:
        del sys.modules[TOOLS]
    return openvino


@cache
def core() -> Any:
    """The one Core of this process.

    The CPU plugin gives the thread that loads it a signal stack, and takes it away with its Core. When two Cores go in
    the order they came, the first takes away what the second puts back: the next signal then ends the process
    (OpenVINO 2026.4; held by tests/engines/test_engine_signals.py). So there is one, and it stays.
    """
    return runtime().Core()
