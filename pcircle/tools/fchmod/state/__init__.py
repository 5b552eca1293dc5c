"""The state of an entry (owner, mode, access control lists): how it is computed and applied."""
