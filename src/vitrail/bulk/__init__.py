"""Many pictures through one engine: the list frozen, rows in parts that survive a kill, one table at the end."""
