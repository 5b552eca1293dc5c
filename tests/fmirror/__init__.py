"""Tests of fmirror."""
