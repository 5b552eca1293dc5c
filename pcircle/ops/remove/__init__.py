"""Removing trees."""
