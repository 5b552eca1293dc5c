"""Copying trees: the plan of a copy, its items, and its visitor of the walk."""
