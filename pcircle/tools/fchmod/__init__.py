"""fchmod, fchown, fchgrp: change modes and owners in parallel.

The new state of an entry (owner, mode, access control lists) is computed from its current state
without system calls. The package `state` then applies the new state with as few calls as possible,
and writes the old state as text for `--undo`. All names of a hard-linked file are sent to one rank,
which changes the file under the first name.

Entries are changed by name in batches only if no decision depends on their current state. Set-id
bits and `--from` require open descriptors, and so do all entries in a directory in which other
users may exchange names.
"""
