"""Checkpoints: the completed work of a job on disk, so that another run can resume it.

`store` is the checkpoint as a directory, with its lock and the mark by which a run recognizes the
target of previous runs. `journal` collects the records of a work item, and has the records that
each rank appends. `file_system_sync` flushes the target once per epoch. `previous_records` finds
the work of previous runs. Records describe directories, names in directories and ranges of files.
The package has no command-line options, and it reports problems as data for which the tools have
the messages.
"""
