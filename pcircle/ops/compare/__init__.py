"""Compares two entries without changing them.

A result is a sum of bits, which `fields` defines. `StatusComparer` compares the results of stat,
for a single pair or for two blocks of look-ups. `DetailComparer` compares fields that must be read
from the entries: link targets, extended attributes, access control lists, inode flags, layouts and
holes. `ContentComparer` compares ranges of two open files byte by byte. `itemize` formats a result
like rsync. This package does not depend on walks, ranks or tools.
"""
