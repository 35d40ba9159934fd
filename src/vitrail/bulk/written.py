"""What a job leaves behind: a table, and how many of its rows are errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from vitrail.config import Frozen


class Written(Frozen, frozen=True, kw_only=True):
    """A finished table, and its errors by reason, most frequent first."""

    out: Path
    rows: int
    errors: Mapping[str, int]

    @property
    def bad(self) -> int:
        """How many pictures could not be read."""
        return sum(self.errors.values())

    def __str__(self) -> str:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in self.errors.items())
        return f"{self.out}: {self.rows:,} rows, {f'of which errors: {reasons}' if reasons else 'no errors'}"


def summary(out: Path, errors: Iterable[str | None]) -> Written:
    """A table by the errors of its rows; None for a good one."""
    rows, reasons = 0, Counter[str]()
    for error in errors:
        rows += 1
        reasons.update([error.partition(":")[0]] if error else [])
    return Written(out=out, rows=rows, errors=dict(reasons.most_common()))
