"""frm: remove files and trees in parallel."""
