"""btrfs lists entries from when a directory was opened: later listings must see the new ones."""

from __future__ import annotations

import os
from collections.abc import Callable

from pcircle.fs.scan import blocks, rewound

from .running import TWO, run_fcp
from .trees import make_directory, write_file


def test_an_open_directory_is_listed_with_new_entries(mount: Callable[..., bytes]) -> None:
    home = mount("btrfs", 300 << 20)
    fd = os.open(home, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for number in range(3):
            write_file(home + b"/%d" % number, b"")
            listed = [name for block in blocks(rewound(fd)) for name in block.files]
            assert len(listed) == number + 1
    finally:
        os.close(fd)


def test_no_checkpoint_is_left(place: bytes, mount: Callable[..., bytes]) -> None:
    source = make_directory(place, b"source")
    for number in range(20):
        write_file(source + b"/%d" % number, b"content")
    home = mount("btrfs", 300 << 20)
    finished = run_fcp(TWO, "-a", source, home + b"/copy")
    assert finished.code == 0
    assert finished.said == ""
    assert os.listdir(home) == [b"copy"]
