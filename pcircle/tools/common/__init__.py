"""Code that several commands share: options, programs and reports of copies and removals."""
