"""The contract of system calls in C and their twins in Python."""
