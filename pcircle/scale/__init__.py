"""Simulates jobs of any size on a model of the protocol: how many ranks a task is worth."""
