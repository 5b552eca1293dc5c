"""fsum, run like a user does."""
