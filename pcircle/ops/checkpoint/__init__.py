"""Checkpoints: the completed work of a job on disk, so that another run can resume it.

`store` is the checkpoint as a directory and `lock` its lock. `journal` has the records that each
rank appends, `recorder` collects the records of a work item, and `file_system_sync` flushes the
target once per epoch. `previous_records` finds the work of previous runs, and `target_mark` checks
that the target is still the one they wrote to. Records describe directories, names in directories
and ranges of files. The package has no command-line options, and it reports problems as data for
which the tools have the messages.
"""
