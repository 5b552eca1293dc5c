"""fdiff: compare two trees in parallel.

The walk reads both sides together. If the names in a directory of A fit in one block, the two
listings are compared as sets before any entry is looked up. In larger directories, the names of A
are looked up in B, and the names of B in A. This is done block by block, so that neither listing
must fit in memory. Subtrees that exist on one side only are walked in the same job as separate
roots.

The names of hard-linked files, and files that may have moved, are sent as records to rank 0, which
sorts them on disk. All names of a file of A form a group, and so do all names of a file of B. The
hard links of a group are the same on both sides if all its names belong to a single file on the
other side.
"""
