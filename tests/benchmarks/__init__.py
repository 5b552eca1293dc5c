"""fcp beside every copy tool at hand: data sets, interleaved runs, one table.

``python -m tests.benchmarks DIR`` makes the data sets on the file system of DIR, copies each of
them with each tool and prints medians, minima and ratios to ``cp -a``; docs/benchmarks.rst says
how to read the table.

The idea is that *ratios travel, seconds do not*. A machine that is shared, throttled or just
warm makes the seconds of one minute useless beside those of the next, so no tool is ever timed
in a block of its own: a round runs every tool once, the order is rotated from round to round (no
tool always runs after the same one), a ratio is taken inside its round, and only then is the
median taken. The first round warms the caches and is dropped. What is not the copy is not timed:
making the data, deleting the target, flushing what the last tool left dirty, checking the result.

A time counts only if the copy is right, so each target is surveyed (entries by kind, bytes) and a
sample of its files is compared by content. That is cheap and no substitute for the tests: hard
links, holes, modes and times are not looked at here.

``datasets`` makes the trees, ``tools`` knows the command lines, ``measure`` runs one process,
``rounds`` puts them in order, ``report`` prints. Nothing but the standard library is used, so
that the harness runs with any Python that fcp runs with. It is not a profiler, and it measures
warm page caches only.
"""
