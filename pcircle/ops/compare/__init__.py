"""Comparison of two entries, without changing either.

A result is a sum of the bits in `fields`. `StatusComparer` compares what stat returns, one pair or
two blocks of look-ups at a time. `DetailComparer` compares what must be read from the entries: link
targets, extended attributes, access control lists, inode flags, layouts and holes.
`ContentComparer` compares ranges of two open files byte by byte. `itemize` shows a result like
rsync. This package does not depend on walks, ranks or tools.
"""
