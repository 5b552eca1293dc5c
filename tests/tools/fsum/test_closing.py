"""Errors on close of a file that was read do not change its digest."""

from __future__ import annotations

import os

import pytest

from tests.fusefs.fixture import Mount
from tests.fusefs.rules import Rule
from tests.tools.fcp.running import Launcher, Run


@pytest.mark.parametrize("words", [[], ["--chunksize=1M"], ["--format=coreutils"]])
def test_a_failed_close_does_not_affect_the_digest(words: list[str], fuse: Mount) -> None:
    mount = fuse()
    tree = mount.backing + b"/tree"
    for folder, size in ((b"few", 5), (b"large", 3 << 20)):
        os.makedirs(tree + b"/" + folder)
        for name in (b"a", b"b"):
            with open(tree + b"/" + folder + b"/" + name, "xb") as file:
                file.write(name * size)
    said = []
    for rules in ((), (Rule(("flush",), "tree*", errno="EIO"),)):
        mount.rules(*rules)
        with Run(
            Launcher(jobs=1), *words, mount.path + b"/tree", program=("pcircle.tools.fsum",)
        ) as run:
            done = run.finish()
        assert done.code == 0, done.said
        said.append(done.out)
    assert said[0] == said[1]
