"""fprof: what is in a file system, and what it would take to store it elsewhere."""
