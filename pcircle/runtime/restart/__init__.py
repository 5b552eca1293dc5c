"""Jobs that begin again without a rank that was lost."""
