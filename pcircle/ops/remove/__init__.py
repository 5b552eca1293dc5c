"""Removing trees: a visitor that removes the entries that the walk finds.

A directory is removed when the walk leaves it, in place or in the item's join; entries that stay
go up as the result. Directories are opened by `openat2`, so that neither a link nor a mount can
come between the listing and the opening. Before a batch is unlinked, its names are written to
memory that all local ranks share (`removal_log.py`): if a rank is killed, rank 0 looks up which of
these names are gone, so the counts are exact at any moment.
"""
