"""The work of a mirror on each rank: comparisons, updates, links, backups and removals."""
