"""Removes trees, with a visitor that removes the entries that the walk finds.

A directory is removed when the walk leaves it, in the item that read it or in the join of that
item. The result of an item reports whether entries stay. Directories are opened by `openat2`, so
that a link or mount that has replaced a directory since the listing is not followed. In a job that
can restart after the loss of a rank, the names of each batch are first written to memory shared by
all ranks (`removal_log`). After a rank is killed, the names that no longer exist are counted as
removed.
"""
