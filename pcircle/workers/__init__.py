"""A rank's worker threads, and how many of them are useful.

Under the interpreter lock threads are for waiting. `pool` has those that a rank's main thread
gives file work to; `climb` finds how many are useful, from what `spent` says of their time;
`overlap` shares one range of calls among a few; `throttle` makes them wait. The runtime is built on
this room, and so is `pcircle.aio`, whose futures can be had without a runtime.
"""
