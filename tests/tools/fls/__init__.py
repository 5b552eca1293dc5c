"""fls as its users run it: judged by ls, du and os.lstat."""
