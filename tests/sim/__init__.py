"""The engine in the simulator: thousands of jobs, each drawn from a seed that replays it.

`work` is the synthetic tree that a job walks, `cases` draws a job from a seed, `driver` plays a
rank, `judge` reports violations, `mutants` are engines with a known defect which the search must
find. `walking` has the real walk as items (`grove` is its tree), `walk_mutants` its defects.
"""
