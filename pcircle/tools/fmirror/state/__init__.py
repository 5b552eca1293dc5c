"""The state that previous runs have recorded, and changes since then."""
