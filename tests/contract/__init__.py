"""Suites that hold every implementation of one interface to the same promises."""
