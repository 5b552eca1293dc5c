"""fdiff as users run it."""
