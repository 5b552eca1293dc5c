"""fmirror: make one tree identical to another.

A mirror is a copy (`pcircle.ops.copy.tree`) that differs in two ways. An overwrite policy, not
fcp's options, decides what happens to each existing name. A visitor stats the files of both sides
in batches, and only counts files that are up to date. Before the walk opens a directory, its whole
subtree is compared in batches for a few milliseconds. If nothing differs, the walk skips it.
If change times and the state of the last complete run (`state/`) show that extended attributes and
access control lists are unchanged, these are not read. `phases` lists the jobs of a run in order.

Extraneous entries are found while the source is being listed, and rank 0 collects them in a file. A
second job removes them with frm's remover, which counts, limits and reports removals as frm does.
Nothing is removed before the last directory of the source has been read. Because a listing may be
incomplete, each name is first looked up in the source again. A directory that changes while it is
being listed is listed again. A vanished entry may have moved to a directory that had already been
read. Therefore, a job between the copy and the removals compares change times.

With `--delete=during`, the rank that compares a directory removes its extraneous entries at once,
after the same look-ups. This is useful if the target is almost full.

A list can restrict a mirror to entries that may have changed. It is given by `--changed-from`, or
derived from two btrfs snapshots or from a manifest of the target (`--since-manifest`). A list
determines which entries are compared, not what is done with them.
"""
