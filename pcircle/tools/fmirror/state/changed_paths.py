"""`--changed-from`: entries of a list are compared; those that the source lacks are extraneous."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby

from pcircle.core.encoding import text_of
from pcircle.fs.directories import Directories, bases, capacity_of, working_directory
from pcircle.fs.lists import record_of
from pcircle.fs.sorting import Sorter
from pcircle.tools.fmirror.work.extraneous import Finder, Surplus, packed

_NO_SUCH = (FileNotFoundError, NotADirectoryError)


def named(
    records: Iterable[bytes],
    sides: tuple[bytes, bytes],
    finder: Finder | None,
    gone: Callable[[Surplus], None],
    known: Sequence[tuple[int, int] | None] = (),
) -> Iterator[bytes]:
    """Yield the records of listed entries that the source has; `gone` receives the others.

    The `sides` are `known` as in `Base`. Parent directories are included, because their times have
    changed. Without a `finder` nothing is removed. StoppedEarly without space.
    """
    base = bases([(side, b"") for side in sides], working_directory(), known)
    directories = Directories(base, capacity_of(is_first=True))
    missing = Sorter()
    try:
        for record in records:
            path = record.rstrip(b"\0").replace(b"\0", b"/")
            above, _, name = path.rpartition(b"/")
            try:
                if name:
                    with directories.lease(0, above) as lease:
                        os.stat(name, dir_fd=lease.fd, follow_symlinks=False)
                    yield record_of(above or b".")
            except _NO_SUCH:
                missing.add(record)
                continue
            except OSError:
                pass  # who looks at it tells
            yield record
        yield from _missing(missing.sorted(), directories, finder, gone)
    finally:
        missing.close()
        directories.close()


def _missing(
    records: Iterable[bytes],
    directories: Directories,
    finder: Finder | None,
    gone: Callable[[Surplus], None],
) -> Iterator[bytes]:
    """Yield directories that have lost listed entries, and report what to remove."""
    paths = (record.rstrip(b"\0").replace(b"\0", b"/") for record in records)
    tops = ((_top(path, directories), path) for path in paths)
    for above, group in groupby(tops, lambda each: os.path.dirname(each[0])):
        yield record_of(above or b".")
        if finder is None:
            continue
        try:
            surplus = _surplus(above, directories, finder)
        except _NO_SUCH:
            continue  # the target has it no more
        except OSError:
            yield record_of(above or b".", whole=True)  # who looks at it tells
            continue
        there = (path for top, path in group if top in surplus and _is_there(path, directories))
        gone(packed(0, there))


def _top(path: bytes, directories: Directories) -> bytes:
    """Return the first missing name on a path."""
    while True:
        above = os.path.dirname(path)
        if not above:
            return path
        try:
            with directories.lease(0, above):
                return path
        except OSError:
            path = above


def _is_there(path: bytes, directories: Directories) -> bool:
    above, _, name = path.rpartition(b"/")
    try:
        with directories.lease(1, above) as lease:
            os.stat(name, dir_fd=lease.fd, follow_symlinks=False)
    except _NO_SUCH:
        return False
    except OSError:
        pass  # who removes it tells
    return True


def _surplus(above: bytes, directories: Directories, finder: Finder) -> set[bytes]:
    """Return the names that the target's directory has and the source's lacks. OSError."""
    lease = directories.lease
    with lease(0, above, readable=True) as source, lease(1, above, readable=True) as target:
        names = {text_of(name) for name in os.listdir(b"/proc/self/fd/%d" % source.fd)}
        found = finder.surplus(names, (source.fd, target.fd), above)
        return {path for paths in found for path in paths}
