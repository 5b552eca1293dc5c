"""Removing trees on all ranks, for whichever tool removes something."""
