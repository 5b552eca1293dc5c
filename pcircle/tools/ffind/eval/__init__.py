"""Evaluates expressions for entries."""
