"""Tests of `pcircle.testing`: what it must find in a task, and what it must leave alone."""
