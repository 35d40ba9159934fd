"""A library answering for folders of pictures, in a process of its own: `python -m bench.answer LIBRARY MODEL`.

A folder's name comes on stdin; when its rows are in the table beside it, `done` goes to stdout.
"""

# Libraries are imported by whoever runs them: vitrail's process has no torch, as a user's has none.

from __future__ import annotations

import csv
import sys
from collections.abc import Callable
from pathlib import Path

PIPELINE_BATCH = 1  # its default, and its best on a CPU: 4 and 8 are 2 to 15% slower
Answer = Callable[[Path, Path], None]  # a folder to a table


def vitrail(model: str) -> Answer:
    """As a user writes it."""
    import vitrail

    def answer(folder: Path, table: Path) -> None:
        table.unlink(missing_ok=True)
        vitrail.predict(model, folder, out=table, say=lambda line: print(line, file=sys.stderr))

    return answer


def transformers(model: str) -> Answer:
    """The image-classification pipeline over a list of files."""
    from bench.peers import peer

    pipe = peer("transformers").pipeline("image-classification", model=model)

    def answer(folder: Path, table: Path) -> None:
        files = sorted(str(path) for path in folder.rglob("*.jpg"))
        rows = zip(files, pipe(files, batch_size=PIPELINE_BATCH), strict=True)
        with table.open("w", newline="") as out:
            csv.writer(out).writerows([path, found[0]["label"], found[0]["score"]] for path, found in rows)

    return answer


def main() -> None:
    library, model = sys.argv[1:]
    answer = {"vitrail": vitrail, "transformers": transformers}[library](model)
    for line in sys.stdin:
        folder = Path(line.rstrip("\n"))
        answer(folder, folder.with_name(f"{folder.name}.{library}.csv"))
        print("done", flush=True)


if __name__ == "__main__":
    main()
