"""Copying: `entry` copies single entries, and `tree` copies trees."""
