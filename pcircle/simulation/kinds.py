"""The kinds of messages that ranks of a simulated job send."""

ASK, REFUSE, ANSWER, PUSH, WAIT, RETURNS, QUIESCE, DRAIN, GATHER, STOP = range(10)
LAST_LOOSE = RETURNS
"""Up to this one they travel between any two ranks, and later ones along the tree of ranks."""
