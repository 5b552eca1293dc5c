"""Generators for manual pages, completions, option lists and schemas."""
