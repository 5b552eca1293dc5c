"""fls as users run it, compared with ls, du and os.lstat."""
