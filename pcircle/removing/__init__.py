"""Parallel removal of trees, used by every tool that removes entries."""
