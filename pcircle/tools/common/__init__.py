"""Code that several commands share: the options, the program and the reports of copies."""
