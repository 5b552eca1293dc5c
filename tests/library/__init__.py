"""Tests of the tools as functions."""
