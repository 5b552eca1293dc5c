"""Profiles of trees: summed, merged, saved, and compared with each other."""
