"""The part of a list of paths that belongs to an item; `pcircle.fs.lists` implements the lists.

This is a separate module, because any item may have such a part, but few runs need the lists.
"""

# Annotations are not postponed here: otherwise msgspec compiles each of them in every rank.
import msgspec

COMMENT = (b"#", b";")
"""The first bytes of comment lines in a list whose paths are terminated by newlines."""


class PathListSlice(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The listed paths below a directory, as text or as a range.

    The range from `begin` to `end` refers to the list on rank 0, in which the first `skip` bytes of
    each record are the path of the directory.
    """

    text: bytes = b""
    begin: int = 0
    end: int = 0
    skip: int = 0

    @property
    def is_range(self) -> bool:
        """Return whether this is a range, which only rank 0 can read."""
        return self.end > self.begin
