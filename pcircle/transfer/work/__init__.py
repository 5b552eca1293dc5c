"""The work of a rank in a copy: each kind of item, and its results."""
