"""Copying of one entry from an open directory to another, with its attributes.

`files` copies contents, with a fast path for small files, `links` and `special_files` the other
kinds. `target` creates, replaces and publishes files, and `overwrite` decides which existing
entries are left alone. `attributes` and `layouts` have what a copy preserves. This package knows
`CopySettings` but no tool's options, and nothing of items, ranks or journals, so any tool that
walks a tree can use it.
"""
