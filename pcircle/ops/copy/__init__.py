"""Copying: `entry` copies one file, link or directory; `tree` copies trees."""
