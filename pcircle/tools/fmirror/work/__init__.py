"""The work of a mirror on each rank: comparing, overwriting, linking, backups and removals."""
