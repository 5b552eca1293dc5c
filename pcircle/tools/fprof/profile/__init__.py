"""Profiles of trees: how they are collected, merged, saved and compared."""
