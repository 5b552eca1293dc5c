"""An entry's owner, mode and lists: what they are to be, and the calls that make them so."""
