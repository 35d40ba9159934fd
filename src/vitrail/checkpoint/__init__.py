"""Foreign bytes to our models and back. What each format looks like: docs/formats.md.

Names are looked up on first use: whoever only asks where a model lies, or replaces a file, imports no torch.
"""

from typing import TYPE_CHECKING

from vitrail.verb import looks_up

if TYPE_CHECKING:
    from vitrail.checkpoint.convert import convert as convert
    from vitrail.checkpoint.custom import rules_from_toml as rules_from_toml
    from vitrail.checkpoint.load import inspect as inspect
    from vitrail.checkpoint.load import load as load
    from vitrail.checkpoint.report import ConversionReport as ConversionReport
    from vitrail.checkpoint.report import Report as Report
    from vitrail.checkpoint.save import save as save

looks_up(
    __name__,
    {
        "ConversionReport": "vitrail.checkpoint.report",
        "Report": "vitrail.checkpoint.report",
        "convert": "vitrail.checkpoint.convert",
        "inspect": "vitrail.checkpoint.load",
        "load": "vitrail.checkpoint.load",
        "rules_from_toml": "vitrail.checkpoint.custom",
        "save": "vitrail.checkpoint.save",
    },
)
