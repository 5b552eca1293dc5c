"""fls: list files and trees in parallel.

A directory of up to 4,096 names is listed by the item that reads it. Its sorted text is sent to
rank 0 as one record. The names of a larger directory are looked up in batches by any rank, and the
columns of each name are one record. Rank 0 pads these columns to the widths of all batches.

A record begins with the keys (`Keys` in `plan.py`) of all directories above the entry. Sorting
records as bytes sorts the listing, because descending keys are complemented and times and sizes
have a fixed width. Rank 0 sorts records in bounded memory, and in temporary files if there are
many. A listing therefore needs no directory that all ranks share, and its memory use does not
depend on the size of a directory. In sorted records, a directory precedes its contents, so
`--total` adds them up in one pass.
"""
