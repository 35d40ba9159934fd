"""Foreign bytes to our models and back. What each format looks like: docs/formats.md."""

from vitrail.checkpoint.convert import convert
from vitrail.checkpoint.custom import rules_from_toml
from vitrail.checkpoint.load import inspect, load
from vitrail.checkpoint.report import ConversionReport, Report
from vitrail.checkpoint.save import save

__all__ = ["ConversionReport", "Report", "convert", "inspect", "load", "rules_from_toml", "save"]
