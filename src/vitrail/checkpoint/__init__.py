"""Foreign bytes to our models and back. What each format looks like: docs/formats.md."""

from vitrail.checkpoint.load import inspect, load
from vitrail.checkpoint.report import Report

__all__ = ["Report", "inspect", "load"]
