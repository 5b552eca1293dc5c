"""The command `python -m pcircle.scale`: simulate how a task scales with the number of ranks."""
