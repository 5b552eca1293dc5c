"""The copy itself, as one rank does it: what each item means, and what comes of it."""
