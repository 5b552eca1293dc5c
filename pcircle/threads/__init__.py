"""Worker threads of a rank, and the search for a useful number of them.

Because of the interpreter lock, threads only help with calls that wait. `workers` has the pool that
runs the file work of a rank, and a division of a range of calls among a few helpers.
`thread_tuning` finds how many threads pay off, using times that `workers` reads from the kernel.
`deadline` limits the time of each call, and `throttle` slows threads down. The runtime is built on
this package, and so is `pcircle.aio`, whose futures work without a runtime.
"""
