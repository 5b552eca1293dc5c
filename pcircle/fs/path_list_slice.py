"""The part of a list of paths that an item carries; the lists themselves are in `pcircle.fs.lists`.

It is a module of its own, because every item may carry it, and few runs have a list.
"""

# Annotations are evaluated here, once: otherwise msgspec compiles each of them in every rank.
import msgspec

COMMENT = (b"#", b";")
"""The first bytes of comment lines in a list whose paths end with newlines."""


class PathListSlice(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The listed paths below a directory: the text itself, or a range.

    A range, from `begin` to `end`, is of the list on rank 0, where the first `skip` bytes of each
    record lead to the directory.
    """

    text: bytes = b""
    begin: int = 0
    end: int = 0
    skip: int = 0

    @property
    def is_range(self) -> bool:
        """Return whether only rank 0 can read it."""
        return self.end > self.begin
