"""Code that several commands share: options and reports of copying, programs of removals."""
