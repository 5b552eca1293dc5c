"""Copies trees: the plan, the items, and the visitor of the walk.

`items` defines the plan, which rank 0 makes, and the items, which travel between ranks. `task` does
the work of one rank, with a checkpoint if requested; `worker` builds the objects of one thread.
`visitor` creates the directories of the target. `entries` copies the entries of a directory,
`small_directories` many small directories at once, `large_files` large files in chunks, and `links`
hard-linked files. `verify` reads copies back. `resume` continues a copy from its checkpoint.
`dry_run` predicts and reports the same work without changing anything.

Nothing here depends on command-line options or a terminal; the program and the reports of the
commands that copy are in `pcircle.tools.common`.
"""
