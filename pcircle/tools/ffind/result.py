"""The result of a search by a program."""

from __future__ import annotations

from typing import NamedTuple

from pcircle.cli.tree_program import TreeReport


class Found(NamedTuple):
    """The `report`, as --json writes it, and the `text` that the command would print."""

    report: TreeReport
    text: bytes

    @property
    def paths(self) -> list[bytes]:
        """Return the paths printed by -print0, or by -print if no name contains a newline."""
        end = b"\0" if b"\0" in self.text else b"\n"
        return self.text.split(end)[:-1]
