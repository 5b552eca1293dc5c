"""Reports of a copy: while it runs, at its end, in the error log, as a signature."""
