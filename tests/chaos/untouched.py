"""Whether a folder is what it was, to the byte and to the minute. (RELIABILITY.md A7)"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def tree(folder: Path) -> str:
    """A hash of everything below a folder: names, kinds, times and, of files that are not absurd, bytes."""
    hasher = hashlib.sha256()
    for path in sorted(folder.rglob("*"), key=os.fsencode):
        status = path.lstat()
        hasher.update(os.fsencode(path) + f"{status.st_mode} {status.st_size} {status.st_mtime_ns}".encode())
        if path.is_file() and not path.is_symlink() and status.st_size < 10**9:
            hasher.update(path.read_bytes())
    return hasher.hexdigest()
