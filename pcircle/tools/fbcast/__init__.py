"""fbcast: copy the same files to every node, or to none.

One rank reads the files and sends a stream of frames to all nodes. Each node writes the stream to a
temporary directory. A collective operation then renames the new entries on all nodes. A broadcast
does not use work stealing, because each node writes everything and there is no work to balance.

`BroadcastNode` and `Conductor` perform no input or output themselves. A simulator runs them in
search of errors (`python -m tests.tools.fbcast FIRST SEEDS`), and `Loop` (`command.py`) runs them
on a transport.

`forwarder.py` chooses how the stream travels. In a chain, each node forwards every chunk to the
next. Scatter and exchange is faster for very many nodes. A node acknowledges a chunk only after
writing and forwarding it, so a slow disk slows the sender down instead of filling memory.
"""
