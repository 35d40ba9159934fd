"""Every reader of foreign bytes against a million inputs: `make fuzz`."""
