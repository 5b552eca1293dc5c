"""Jobs over trees, independent of a user interface: tasks, counters, failures and plan files."""
