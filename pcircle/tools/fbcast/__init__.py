"""The command fbcast: the same files on every node, or on none."""
