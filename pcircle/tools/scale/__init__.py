"""The command `python -m pcircle.scale`, which simulates how a task scales with its ranks."""
