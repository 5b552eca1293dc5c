"""What several commands share: options and report of copying, carrying out removals."""
