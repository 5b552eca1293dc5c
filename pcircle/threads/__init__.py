"""Worker threads of a rank, and how many of them are useful.

Under the interpreter lock, threads are for waiting. `pool` runs the file work that a rank's main
thread submits; `thread_tuning` finds how many threads pay off, from the times that `threads` reads
from the kernel; `overlap` divides one range of calls among a few helpers; `deadline` limits the
time of each call; `throttle` and `load_limit` slow threads down. The runtime is built on this
package, and so is `pcircle.aio`, whose futures work without a runtime.
"""
