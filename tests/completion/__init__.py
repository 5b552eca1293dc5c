"""Completions at a terminal, in the real shells."""
