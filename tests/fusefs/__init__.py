"""A FUSE file system of the tests' own: a directory passed through, with faults on demand."""
