"""-a on a branch deeper than any path may be long, with links across its depth.

In `test_preserve` rsync compares the other attributes of -a; it fails here, so the walker does,
with attributes, access control lists and the identity of hard links read by descriptor.
"""

from __future__ import annotations

import os
import stat

import pytest

from .judge import METADATA, differences
from .running import Launcher, copy, document, launchers
from .test_preserve import ACCESS, acl_for, give
from .trees import ODD_TIMES_NS, build_deep_tree, count, make_directory, walk

LEVELS = 3000


@pytest.fixture(scope="session")
def branch(shared_place: bytes) -> bytes:
    """Build 3,000 levels; every 500th has a FIFO, attributes, a list, and a name of one file."""
    root = build_deep_tree(make_directory(shared_place, b"deep torture") + b"/branch", LEVELS)
    one = os.open(root + b"/file", os.O_RDONLY)
    context = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    for level in range(LEVELS):
        below = os.open(b"lev-%04d" % level, os.O_RDONLY | os.O_DIRECTORY, dir_fd=context)
        if not level % 500:
            status = os.fstat(context)
            os.link(b"/proc/self/fd/%d" % one, b"same", dst_dir_fd=context, follow_symlinks=True)
            os.mkfifo(b"fifo", 0o620, dir_fd=context)
            os.utime(b"fifo", ns=(0, ODD_TIMES_NS[level % 8]), dir_fd=context)
            place = b"/proc/self/fd/%d" % context
            give(place + b"/file", "user.level", b"%d" % level)
            give(place + b"/file", ACCESS, acl_for(1000 + level, 5))
            os.utime(context, ns=(status.st_atime_ns, status.st_mtime_ns))
        os.close(context)
        context = below
    os.close(context)
    os.close(one)
    return root


def _more(root: bytes) -> list[tuple[object, ...]]:
    """Return data that the judge ignores: attributes, and which names are one file."""
    found: list[tuple[object, ...]] = []
    seen: dict[int, int] = {}
    for number, visit in enumerate(walk(root)):
        if stat.S_ISDIR(visit.status.st_mode) or stat.S_ISLNK(visit.status.st_mode):
            continue
        path = b"/proc/self/fd/%d/%b" % (visit.parent, visit.name)
        names = sorted(os.listxattr(path, follow_symlinks=False))
        values = [os.getxattr(path, name, follow_symlinks=False) for name in names]
        first = seen.setdefault(visit.status.st_ino, number)
        found.append((visit.name, visit.status.st_nlink, first, names, values))
    return found


@pytest.mark.parametrize("launcher", launchers([1, 3], [4]))
def test_everything_is_preserved_at_any_depth(
    launcher: Launcher, branch: bytes, place: bytes
) -> None:
    target = place + b"/copy"
    copy(launcher, "-a", "--json", place + b"/result", branch, target)
    assert differences(branch, target, METADATA) == []
    assert _more(branch) == _more(target)
    assert any(nlink == 7 for _, nlink, *_ in _more(target))
    result = document(place + b"/result")
    assert result["entries"] == count(branch)[0]
    assert (result["special"], result["not_kept"]) == (6, {})
