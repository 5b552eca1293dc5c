"""The kinds of messages in a simulated job."""

ASK, REFUSE, ANSWER, PUSH, WAIT, RETURNS, QUIESCE, DRAIN, GATHER, STOP = range(10)
LAST_LOOSE = RETURNS
"""The last kind that travels between arbitrary ranks.

Later kinds travel along the tree of ranks.
"""
