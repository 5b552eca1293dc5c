"""The walk over trees that all tools share.

`walker` visits directories depth first, and hands out the remaining work after some milliseconds.
`items` defines the units of work, `open_directory` the state of open directories, and `visitor` the
interface that tools implement. `roots` defines where a walk starts, and `globs` and `attributes`
select entries by rules and filters.

`segments` stores results in files if they are too long for messages; all ranks sort these files
together.
"""
