"""Checkpoints: records of completed work on disk, with which another run can resume a job.

`store` manages the directory of a checkpoint, its lock, and the mark by which a run recognizes the
target of previous runs. `journal` collects the records of each item and appends them to a file.
`file_system_sync` flushes the target once per epoch. `previous_records` finds the work of previous
runs. Records describe directories, names in directories and ranges of files. The package defines no
command-line options, and reports problems as data that the tools turn into messages.
"""
