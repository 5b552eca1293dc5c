"""Owner, mode and access control lists of an entry: the new state, and the calls to reach it."""
