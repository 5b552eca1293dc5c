"""The walk of a comparison: of both sides, of entries of one side, and of large files."""
