"""The walk over trees that all tools share.

`walker` visits directories depth first and hands out what is left after some milliseconds; `items`
are its units of work as they travel, `opened` the open directories, `visitor` the interface of
tools. `roots` are where a walk starts; `globs`, `attributes` and `choosing` apply rules and
filters.

`sink` takes results that are too long for messages, in files of the ranks (`segments`), and has all
ranks sort them.
"""
