"""fbcast: the same files on every node, or on none.

One rank reads, a stream of frames goes to all nodes and is written under a temporary name, and
renaming it is one collective operation. `Node` and `Conductor` are pure and are searched in the
simulator (`python -m tests.fbcast FIRST SEEDS`); `loop.py` runs them. A broadcast is not a walk
with work stealing: data that is read once need not be shared out, and each node writes everything,
so there is nothing to balance.

`model.py` chooses the way of the stream: a chain of nodes, each of which passes on chunk by chunk,
or a scatter and an exchange for very many nodes. A chunk is acknowledged once it is written and
passed on, so a slow disk slows the sender down and fills no memory.
"""
