"""fcp compared with all available copy tools: data sets, interleaved runs, one table.

``python -m tests.benchmarks DIR`` creates the data sets on the file system of DIR, copies each of
them with each tool and prints medians, minima and ratios to ``cp -a``; docs/benchmarks.rst explains
the table.

*Ratios are portable, seconds are not*. On a shared, throttled or warm machine the seconds of one
minute cannot be compared with those of the next, so no tool has a block of its own: a round runs
every tool once, the order is rotated from round to round (no tool always runs after the same one),
a ratio is taken inside its round, and only then is the median taken. The first round warms the
caches and is dropped. Only the copy is timed, not creation of the data, deletion of the target,
flushes of dirty data, or checks of the result.

A time counts only if the copy is correct, so each target is surveyed (entries by type, bytes) and a
sample of its files is compared by content. This check is cheap and does not replace the tests: hard
links, holes, modes and times are not compared here.

``datasets`` creates the trees, ``tools`` has the command lines, ``measure`` runs one process,
``rounds`` orders the runs, ``report`` prints. The harness uses only the standard library, so it
runs with any Python that fcp runs with. It is not a profiler, and it measures warm page caches
only.
"""
