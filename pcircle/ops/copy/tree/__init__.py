"""Copying trees: the plan of a copy, its items, and its visitor of the walk.

`plan` is what rank 0 has decided, `items` what travels between ranks, `task` one rank's part and
`worker` one thread's part. `visitor` makes the target's directories; `entries` copies the names in
them, `small_directories` many small directories at once, `large_files` chunks of large files and
`links` hard links; `verify` reads copies back. `journaled_copy` is the same copy with a checkpoint,
from which `resume` and `resume_partial` continue. `dry_run` changes nothing and reports the same.

Nothing here knows an option or a terminal; `pcircle.tools.common` has the program and the reports
of the commands that copy.
"""
