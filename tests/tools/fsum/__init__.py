"""fsum, run as a user runs it."""
