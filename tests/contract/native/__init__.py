"""What system calls in C and their twins in Python promise."""
