"""Worker threads of a rank, and the search for a useful number of them.

Because of the interpreter lock, threads only help with calls that wait. `pool` runs the file work
that a rank's main thread submits. `thread_tuning` finds how many threads pay off, using times that
`threads` reads from the kernel. `overlap` divides a range of calls among a few helpers, `deadline`
limits the time of each call, and `throttle` and `load_limit` slow threads down. The runtime is
built on this package, and so is `pcircle.aio`, whose futures work without a runtime.
"""
