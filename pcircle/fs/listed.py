"""What an item of work carries of a list of paths; the lists themselves are `pcircle.fs.lists`.

A module of its own, since every item may carry it, and few runs have a list.
"""

# Annotations are evaluated here, once: otherwise msgspec compiles each of them in every rank.
import msgspec

COMMENT = (b"#", b";")
"""How lines begin that are none of a list whose paths end with newlines."""


class Listed(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a list names below a directory: the text itself, or a range.

    A range, from `begin` to `end`, is of the list that rank 0 keeps, where the first
    `skip` bytes of each record lead to the directory.
    """

    text: bytes = b""
    begin: int = 0
    end: int = 0
    skip: int = 0

    @property
    def is_range(self) -> bool:
        """Whether it is for rank 0."""
        return self.end > self.begin
