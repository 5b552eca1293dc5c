"""Tests of the papers' figures: generated at small scale; models match known results."""
