"""Removal of trees by a visitor that removes the entries that the walk finds.

A directory is removed when the walk leaves it, in the item that read it or in the join of that
item. The result of an item reports whether entries stay. Directories are opened by `openat2`, so
that nothing is followed if a directory is replaced by a link or a mount after it was listed. Before
a batch is removed, its names are written to memory that all local ranks share (`removal_log`). If a
rank is killed, rank 0 looks up which of these names no longer exist, so the counts are always
exact.
"""
