"""Peers side by side: `python -m bench [section ...]` (all of them by default) rewrites bench/RESULTS.md."""
