"""The contract of system calls in C and their equivalents in Python."""
