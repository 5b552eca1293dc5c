"""Tests of the figures of papers: made at small scale, and models held to what is known."""
