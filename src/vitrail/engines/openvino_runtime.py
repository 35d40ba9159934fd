"""OpenVINO, imported without its conversion tools."""

from __future__ import annotations

import sys
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
