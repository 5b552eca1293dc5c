"""Extended attributes of all namespaces, and more of them than the kernel lists."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from ...fusefs.fixture import Mount
from .running import ONE, TWO, Run, copy, document
from .trees import MIB, make_directory, write_file

TOOLS: tuple[tuple[str, ...], ...] = (
    ("pcircle.tools.fcp", "-a", "-T"),
    ("pcircle.tools.fmirror", "-q"),
)


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool[0][8:])
def test_attributes_that_the_target_accepts_are_kept(
    tool: tuple[str, ...], place: bytes, mount: Callable[..., bytes]
) -> None:
    """`btrfs.compression` of files and directories is kept on btrfs, and counted elsewhere."""
    home = mount("btrfs", 200 * MIB)
    source = make_directory(home, b"source")
    paths = [make_directory(source, b"d"), write_file(source + b"/f", b"x")]
    for path in paths:
        os.setxattr(path, "btrfs.compression", b"zstd")
    program, *options = tool
    for target in (home + b"/target", place + b"/target"):
        line: tuple[str | bytes, ...] = (*options, "--json", place + b"/json", source, target)
        with Run(TWO, *line, program=(program,)) as run:
            finished = run.finish()
        assert finished.code == 0, finished.said
        if target.startswith(home):
            names = [os.path.join(target, os.path.basename(path)) for path in paths]
            assert [os.getxattr(name, "btrfs.compression") for name in names] == [b"zstd"] * 2
            os.removexattr(names[1], "btrfs.compression")
            with Run(ONE, "--fields=all", source, target, program=("pcircle.tools.fdiff",)) as run:
                assert run.finish().code == 3
        else:
            assert document(place + b"/json")["not_kept"] == {"extended attributes": 2}


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool[0][8:])
def test_omitted_attributes_are_counted(tool: tuple[str, ...], place: bytes, fuse: Mount) -> None:
    """They belong to a namespace that is never copied; layouts on Lustre have a separate count."""
    source, target = make_directory(fuse().path, b"source"), place + b"/target"
    for path in (write_file(source + b"/f", b"x"), make_directory(source, b"d")):
        os.setxattr(path, "lustre.other", b"value")
    program, *options = tool
    line: tuple[str | bytes, ...] = (*options, "--json", place + b"/json", source, target)
    with Run(ONE, *line, program=(program,)) as run:
        finished = run.finish()
    assert finished.code == 0, finished.said
    assert document(place + b"/json")["not_kept"] == {"extended attributes": 2}
    copy(ONE, "--preserve=xattr", "-T", source, place + b"/demanded")  # it can't be requested


def test_more_names_than_the_kernel_lists(place: bytes) -> None:
    """The content is copied and the attributes are counted; by name they are required."""
    source = make_directory(place, b"source")
    path = write_file(source + b"/file", b"content")
    try:
        for number in range(400):
            os.setxattr(path, f"user.{number:0200}", b"v")
    except OSError as error:
        pytest.skip(f"the file system of the tests has no room for 400 attributes: {error}")
    with pytest.raises(OSError, match="too long"):
        os.listxattr(path)
    target = place + b"/target"
    for tool, *options in TOOLS:
        for _ in range(2):
            line: tuple[str | bytes, ...] = (*options, "--json", place + b"/json", source, target)
            with Run(ONE, *line, program=(tool,)) as run:
                finished = run.finish()
            assert finished.code == 0, finished.said
            with open(target + b"/file", "rb") as stream:
                assert stream.read() == b"content"
            if tool == "pcircle.tools.fcp":
                assert document(place + b"/json")["not_kept"] == {"extended attributes": 1}
    with Run(ONE, "--preserve=xattr", "-T", source, place + b"/demanded") as run:
        assert run.finish().code == 1
    copy(ONE, "-p", "-T", source, place + b"/plain")
