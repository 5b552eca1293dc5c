"""The walk of a comparison: of both sides, of what one side has alone, and of large files."""
