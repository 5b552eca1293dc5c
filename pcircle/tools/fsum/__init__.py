"""fsum: one signature for a data set."""
