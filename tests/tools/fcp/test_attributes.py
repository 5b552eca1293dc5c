"""Attributes that do not fit: larger than the destination supports, or the disk is full.

The system returns the same error for both. An attribute that is too large is counted and the entry
copied, unless attributes were requested by name; a full disk stops the job, which continues when
there is space.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress

import pytest

from ...fusefs.fixture import Mount
from ...fusefs.rules import Rule
from .running import FOUR, ONE, TWO, copy, document, run_fcp
from .test_preserve import ACCESS, DEFAULT, acl, acl_for, as_root, attributes, give
from .trees import MIB, content, make_directory, set_times, write_file


def add_large_attributes(source: bytes, name: str, value: bytes) -> list[bytes]:
    """Set them on a small and a large file, a directory, a link and a FIFO; return these."""
    paths = [
        write_file(source + b"/small", b"1"),
        write_file(source + b"/large", content(1, 5 * MIB)),
        make_directory(source, b"directory"),
        source + b"/link",
        source + b"/fifo",
    ]
    os.symlink(b"small", source + b"/link")
    os.mkfifo(source + b"/fifo")
    for path in paths:
        give(path, name, value)
        give(path, "trusted.small", b"1")
    set_times(source)
    return paths


@as_root
def test_attributes_too_large_for_the_destination(
    place: bytes, mount: Callable[..., bytes]
) -> None:
    """They are counted, and the entries copied; if requested by name they are reported failures."""
    source, target = mount("xfs", 320 * MIB), mount("ext4", 40 * MIB)
    paths = add_large_attributes(source, "trusted.large", bytes(20_000))
    # A list of 1,000 users is equally large.
    nobody = 0xFFFFFFFF
    users = [(0x02, 7, 1000 + number) for number in range(1000)]
    fixed = [(0x04, 0, nobody), (0x10, 7, nobody), (0x20, 0, nobody)]
    give(source + b"/small", ACCESS, acl((0x01, 7, nobody), *users, *fixed))
    os.utime(source, (1, 1))
    options = ("-a", "--chunksize", "4M", "--json", place + b"/result")
    finished = copy(FOUR, *options, "-T", source, target)
    assert "extended attributes of 5 entries" in finished.said
    lost = {"extended attributes": 5, "access control lists": 1}
    assert document(place + b"/result")["not_kept"] == lost
    for path in paths:
        made = path.replace(source, target)
        assert os.listxattr(made, follow_symlinks=False) == ["trusted.small"]
        assert os.lstat(made).st_mtime_ns == os.lstat(path).st_mtime_ns
    assert stat.S_IMODE(os.stat(target + b"/small").st_mode) == 0o700
    finished = run_fcp(FOUR, *options, "--preserve=xattr", source, target + b"/demanded")
    assert finished.code == 1
    why = "extended attributes (trusted.large: No space left on device)"
    assert finished.said.count(why) == 5
    assert not os.path.exists(target + b"/demanded/small")


@as_root
@pytest.mark.parametrize("error", ["E2BIG", "ERANGE", "EDQUOT", "ENOSPC"])
def test_attributes_that_a_server_refuses_as_too_large(
    error: str, place: bytes, fuse: Mount
) -> None:
    """Whatever the error is, the other data of the entry is copied."""
    mounted, source = fuse(), make_directory(place, b"source")
    paths = add_large_attributes(source, "trusted.large", bytes(2000))
    mounted.rules(Rule(("setxattr",), errno=error))
    result = place + b"/result"
    copy(ONE, "-a", "--chunksize", "4M", "--json", result, "-T", source, mounted.path)
    assert document(result)["not_kept"] == {"extended attributes": len(paths)}
    for path in paths:
        assert os.path.lexists(path.replace(source, mounted.path))


@as_root
@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_a_full_disk_differs_from_a_large_attribute(
    kind: str, place: bytes, mount: Callable[..., bytes]
) -> None:
    """If nothing fits, the job stops, and the attribute is set when there is space."""
    target = mount(kind, 320 * MIB if kind == "xfs" else 40 * MIB)
    source = make_directory(place, b"source")
    for number in range(8):
        give(write_file(source + b"/%d" % number, b""), "user.a", content(number, 800))
    with open(target + b"/filler", "wb", buffering=0) as stream, suppress(OSError):
        for size in (MIB, 4096, 1):
            with suppress(OSError):
                while stream.write(bytes(size)) == size:
                    pass
    copy_into = ("-a", "-T", source, target)
    finished = run_fcp(TWO, *copy_into)
    assert finished.code == 4, finished.said
    assert "not kept" not in finished.said
    os.remove(target + b"/filler")
    copy(TWO, "--resume", *copy_into)
    assert attributes(source).items() <= attributes(target).items()


@as_root
def test_lists_are_not_copied_as_attributes(place: bytes, mount: Callable[..., bytes]) -> None:
    """XFS shows them to root as `trusted` attributes, which would take effect on another XFS."""
    source, between, target = mount("xfs", 320 * MIB), place + b"/between", mount("xfs", 320 * MIB)
    give(write_file(source + b"/file", b"x"), ACCESS, acl_for(1001, 7))
    give(make_directory(source, b"directory"), DEFAULT, acl_for(1001, 7))
    copy(ONE, "--preserve=xattr", "-T", source, between)
    assert attributes(between) == {}
    copy(ONE, "--preserve=xattr", "-T", source, target)
    assert attributes(target) == {}
