"""Copies single entries, with their attributes, from one open directory to another.

`files` copies regular files, with a fast path for small ones; `links` and `special_files` copy the
other file types. `target` creates, replaces and publishes files, and `overwrite` decides which
existing entries are left alone. `attributes` preserves attributes and Lustre layouts. This package
depends on `CopySettings`, but not on the options of a tool or on items, ranks or journals. Any tool
that walks a tree can use it.
"""
