"""Copying trees: the plan of a copy, its items, and its visitor of the walk.

`plan` is what rank 0 has decided, `items` what travels between ranks, `task` one rank's part and
`worker` one thread's part. `visitor` makes the target's directories; `entries` copies the names in
them, `small` many small directories at once, `large` chunks of large files, `links` hard links and
`verify` reads copies again. `journaled` is the same copy with a record of what was done, `resume`
and `resume_partial` continue from such a record. `dry_run` changes nothing and reports the same.

Nothing here knows an option or a terminal; `pcircle.tools.common` has the program and the reports
of the commands that copy.
"""
