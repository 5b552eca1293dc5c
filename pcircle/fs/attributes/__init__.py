"""Attributes of files: modes, owners, lists, extended attributes, layouts, mounts."""
