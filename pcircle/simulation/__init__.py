"""A discrete-event simulation of the engine, to predict how a task scales to very many ranks.

The simulation models the protocol of `pcircle.circle` rather than running its code. Most events are
messages, or ranks that run out of work. The progress between events is computed from prefix sums,
so a laptop can simulate many thousands of ranks and millions of items.
"""
