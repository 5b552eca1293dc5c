"""fcp: copy files and trees in parallel."""
