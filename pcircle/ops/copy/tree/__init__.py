"""Copying trees: the plan of a copy, its items, and its visitor of the walk.

`items` has the plan, which rank 0 decides, and the items, which travel between ranks. `task` is the
part of a rank, with a checkpoint if requested, and `worker` the part of a thread. `visitor` makes
the target's directories; `entries` copies the names in them, `small_directories` many small
directories at once, `large_files` chunks of large files and `links` hard links; `verify` reads
copies back. `resume` continues a copy from its checkpoint. `dry_run` changes nothing and reports
the same.

Nothing here knows an option or a terminal; `pcircle.tools.common` has the program and the reports
of the commands that copy.
"""
