"""fprof, run as a user does, and its parts."""
