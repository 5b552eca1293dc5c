"""Tests of the walk that all tools share."""
