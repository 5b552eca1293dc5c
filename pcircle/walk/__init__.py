"""The one walk over trees, that all tools share.

`walker` goes through directories depth first and hands out what is left after some milliseconds;
`items` are its units of work as they travel, `opened` the directories under way, `visitor` what a
tool does at each step. `roots` are where it begins, `globs`, `attributes` and `choosing` what
rules and filters leave out.

`sink` takes results that are too long for messages, in files of the ranks (`segments`), and has
them put in order by all.
"""
