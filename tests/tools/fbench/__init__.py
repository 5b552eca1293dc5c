"""fbench, as a user runs it."""
