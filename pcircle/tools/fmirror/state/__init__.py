"""The state of previous runs, and changes since then."""
