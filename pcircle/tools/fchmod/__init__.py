"""fchmod, fchown, fchgrp: change modes and owners in parallel.

The new state of an entry (owner, mode, access control lists) is computed from its current state
without system calls. The package `state` then applies the new state with as few calls as possible,
and writes the old state as text for `--undo`. All names of a hard-linked file are sent to one rank,
which changes the file under the first name that arrives.

Regular files are changed by name in batches if the change depends only on their mode or owner. With
`--from`, maps, access control lists or a plan, each entry is opened first. So is each entry in a
directory in which other users may exchange names, unless all entries receive the same mode.
"""
