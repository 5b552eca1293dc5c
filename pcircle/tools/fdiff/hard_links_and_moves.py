"""Results that are known only at the end, on rank 0: groups of hard links, and moved files.

Both are computed from records that are sorted in temporary files (`pcircle.fs.sorting`), so memory
is constant. The fields of a record contain no NUL.
"""

from __future__ import annotations

from collections.abc import Iterator

from pcircle.fs.sorting import Sorter
from pcircle.jobs.failures import NoticeSink
from pcircle.ops.compare.fields import LINKS
from pcircle.ops.compare.moves import MoveMatcher, pack_candidate, unpack_candidate
from pcircle.tools.fdiff.plan import LinkedPair, OneSidedFile
from pcircle.tools.fdiff.reporter import DiffReporter

_REPORTED_AT_ONCE = 256


class LinkGroups:
    """Hard-linked names of one side, grouped to find differences in hard links.

    The first name of each file, by path, is the reference. Other names differ if they are another
    file on the other side.
    """

    def __init__(self) -> None:
        self._by_a = Sorter()

    def add(self, pair: LinkedPair) -> None:
        """Add a name. Raise OSError if the disk is full."""
        payload = b"%x:%x %d %d %d" % (*pair.b, pair.different, pair.mode, pair.size)
        self._by_a.add(pack_candidate(b"%020x:%020x" % pair.a, pair.path, payload))

    def pairs(self) -> Iterator[tuple[bytes, int, int, int]]:
        """Yield all names with their differences, and A's mode and size. OSError."""
        by_b = Sorter()
        try:
            first = b"", b""
            for record in self._by_a.sorted():
                a, path, payload = unpack_candidate(record)
                b, different, mode, size = payload.split(b" ")
                first = (a, b) if a != first[0] else first
                bits = int(different) | LINKS * (b != first[1])
                device, _, inode = b.partition(b":")
                key = b"%020x:%020x" % (int(device, 16), int(inode, 16))
                by_b.add(pack_candidate(key, path, b"%b %d %b %b" % (a, bits, mode, size)))
            first = b"", b""
            for record in by_b.sorted():
                b, path, payload = unpack_candidate(record)
                a, different, mode, size = payload.split(b" ")
                first = (b, a) if b != first[0] else first
                yield path, int(different) | LINKS * (a != first[1]), int(mode), int(size)
        finally:
            by_b.close()

    def close(self) -> None:
        """Delete the temporary files."""
        self._by_a.close()


class MovedFiles:
    """Files of one side: equal files of A and B are paired, in the order of paths.

    Files are equal if they have the same size, and the same modification time or digest. Empty
    files are never paired.
    """

    def __init__(self, *, by_content: bool) -> None:
        self._by_content = by_content
        self._pairing = MoveMatcher()

    def add(self, file: OneSidedFile) -> None:
        """Add a file. Raise OSError if the disk is full."""
        what = file.digest.hex().encode() if self._by_content else b"%021d" % file.mtime.ns
        size = b"%20d" % file.size if not file.size else b"%020d" % file.size
        payload = b"%d %d %d" % (file.mode, file.size, file.reported)
        self._pairing.add(file.side, size + b" " + what, file.path, payload)

    def tell(self, reporter: DiffReporter, context: NoticeSink) -> None:
        """Report all files as moved or as missing on one side. OSError."""
        for count, (a, b) in enumerate(self._pairing.pairs(), 1):
            if a is not None and b is not None:
                mode, size, _ = map(int, a.extra.split(b" "))
                reporter.moved(a.path, b.path, mode, size)
            for side, one in enumerate((a, b)):
                if one is not None and (a is None or b is None):
                    mode, size, said = map(int, one.extra.split(b" "))
                    reporter.alone(side, one.path, mode, size, reported=bool(said))
            if not count % _REPORTED_AT_ONCE:
                reporter.tell(context)

    def close(self) -> None:
        """Delete the temporary files."""
        self._pairing.close()


def report_groups(groups: LinkGroups, reporter: DiffReporter, context: NoticeSink) -> None:
    """Report all names of hard-linked files. Raise OSError if the disk is full."""
    for count, pair in enumerate(groups.pairs(), 1):
        path, different, mode, size = pair
        reporter.pair(path, mode, size, different)
        if not count % _REPORTED_AT_ONCE:
            reporter.tell(context)
