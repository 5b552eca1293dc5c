"""ffind: find entries in trees in parallel.

`language` parses the expression on every rank without access to files. Rank 0 resolves files, users
and dates in the expression. `eval` compiles the expression once for each kind of entry, so that
`-type f` costs nothing for a regular file. Tests of names select from all names of a directory at
once, then tests of status select rows of the status table. Only the remaining rows become entries.

Output and the events of `-limit` and `-quit` are sent to rank 0 in the order in which they
happened. So a limit is exact on any number of ranks. `--sort` is an external sort on rank 0. A
parallel sort would pay off only if sorting took longer than searching.

`--in` evaluates the same expression over the sections of an index (`index_search.py`).
"""
