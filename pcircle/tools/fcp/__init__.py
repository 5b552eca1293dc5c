"""fcp: copies files and whole trees, on as many ranks as there are."""
