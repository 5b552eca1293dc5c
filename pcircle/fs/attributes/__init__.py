"""Attributes of files: modes, owners, ACLs, extended attributes, layouts and mounts."""
