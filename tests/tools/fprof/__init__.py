"""fprof, run like a user does, and its parts."""
