"""A discrete-event simulation of the engine, to predict how a task scales to very many ranks.

The simulation models the protocol of `pcircle.circle` rather than running its code. Events are
messages and ranks that run out of work. The progress between events is computed from prefix sums,
so a laptop can simulate many thousands of ranks and millions of items.
"""
