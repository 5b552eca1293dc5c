"""fbench, run like a user does."""
