"""Copies files: `entry` copies single entries, and `tree` copies trees."""
