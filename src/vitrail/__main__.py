"""`python -m vitrail`, the same as the `vitrail` command."""

from vitrail.cli import main

main()
