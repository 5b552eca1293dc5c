"""Tests of `pcircle.testing`: the defects it must find in a task, and the code it must accept."""
