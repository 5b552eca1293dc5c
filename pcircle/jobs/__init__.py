"""Jobs over trees, without a terminal: tasks, counters, failures, plan files."""
