"""The walk over trees that all tools share.

`walker` visits directories depth first and hands out what is left after some milliseconds; `items`
are its units of work as they travel, `open_directory` the open directories, `visitor` the interface
of tools. `roots` are where a walk starts; `globs` and `attributes` apply rules and filters.

`segments` stores results that are too long for messages in files of the ranks, and has all ranks
sort them.
"""
