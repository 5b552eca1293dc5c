"""fdiff names the same differences as rsync, in the same columns.

Hard links are compared by brute force. Hypothesis generates trees and changes to a copy. The
examples are the same in every run; ``HYPOTHESIS_PROFILE=explore`` searches further.
"""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import tempfile
from base64 import b64decode
from collections.abc import Sequence

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.programs import required
from tests.tools.fcp import trees
from tests.tools.fcp.conftest import place
from tests.tools.fcp.running import ONE, TWO, Launcher
from tests.tools.fcp.test_property import Node, _build
from tests.tools.fcp.test_property import trees as any_tree

from .running import as_root, run_fdiff

__all__ = ["place"]

EDITS = ("remove", "chmod", "chown", "touch", "rewrite", "append", "kind", "add", "target", "acl",
         "xattr", "rename", "nothing")  # fmt: skip
Edit = tuple[str, int, int]
edits = st.lists(
    st.tuples(st.sampled_from(EDITS), st.integers(0, 1000), st.integers(0, 1000)), max_size=12
)
some_examples = settings(
    max_examples=settings.default.max_examples if settings.default else 100,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


def _paths(top: bytes) -> list[bytes]:
    found = [top]
    for directory, names, files in os.walk(top):
        found += [os.path.join(directory, name) for name in (*names, *files)]
    return sorted(found)


def _make(path: bytes, kind: int) -> None:
    if kind % 4 == 0:
        trees.write_file(path, b"new")
    elif kind % 4 == 1:
        os.mkdir(path)
        trees.write_file(path + b"/inside", b"new")
    elif kind % 4 == 2:
        os.symlink(b"new", path)
    else:
        os.mkfifo(path)
    os.utime(path, ns=(10**18, 10**18), follow_symlinks=False)


def _edit(top: bytes, edit: Edit) -> None:
    """Apply a change to an entry of a tree; skip changes that are impossible there."""
    what, which, how = edit
    paths = _paths(top)
    path = paths[which % len(paths)]
    mode = os.lstat(path).st_mode
    if what == "chmod" and not stat.S_ISLNK(mode):
        os.chmod(path, (0o700, 0o640, 0o4755, 0o1777)[how % 4])
    elif what == "chown":
        os.lchown(path, how % 3, how % 5)
    elif what == "touch":
        os.utime(path, ns=(how, how), follow_symlinks=False)
    elif what in ("rewrite", "append") and stat.S_ISREG(mode):
        with open(path, "r+b" if what == "rewrite" else "ab") as stream:
            stream.write(b"%d" % how)
    elif what == "target" and stat.S_ISLNK(mode):
        os.unlink(path)
        os.symlink(b"%d" % how, path)
    elif what == "add" and stat.S_ISDIR(mode):
        name = b"%b/added %d" % (path, how)
        if not os.path.lexists(name):
            _make(name, how)
    elif what == "acl" and not stat.S_ISLNK(mode):
        options = ["-d"] * (stat.S_ISDIR(mode) and how % 2)
        subprocess.run([required("setfacl"), *options, "-m", f"u:{how}:r", path], check=True)
    elif what == "xattr" and (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        os.setxattr(path, "user.colour", b"%d" % how)
    elif path != top:
        _replace(path, what, how)


def _replace(path: bytes, what: str, how: int) -> None:
    if what == "rename":
        os.rename(path, b"%b renamed" % path)
    elif what in ("remove", "kind"):
        subprocess.run(["rm", "-r", path], check=True)
        if what == "kind":
            _make(path, how)


def _of_rsync(a: bytes, b: bytes) -> dict[bytes, str]:
    """Return rsync's changes by path: its columns, or "A" or "B" for entries of one side."""
    command: list[str | bytes] = [
        required("rsync"),
        "-naHAXi",
        "-8",
        "--delete",
        "--out-format=%i %n",
        "--modify-window=-1",
    ]
    done = subprocess.run([*command, a + b"/", b + b"/"], stdout=subprocess.PIPE, check=True)
    found = {}
    for line in done.stdout.splitlines():
        columns, name = line[:11].decode().rstrip(), line[12:]
        name = re.sub(rb"\\#(\d{3})", lambda match: bytes([int(match[1], 8)]), name)
        if columns == "*deleting":
            columns = "B"
        elif columns.endswith("+++++++++"):
            columns = "A"
        found[name.rstrip(b"/")] = columns
    return found


def _of_fdiff(launcher: Launcher, a: bytes, b: bytes, actions: bytes) -> dict[bytes, str]:
    """Return fdiff's output by path, like `_of_rsync`."""
    options = ("-i", "--fields=default,xattr,acl", "--json-lines", actions)
    finished = run_fdiff(launcher, *options, a, b)
    assert finished.err == b"", finished.said
    lines = finished.out.decode().splitlines()
    assert finished.code == (3 if lines else 0)
    with open(actions, "rb") as stream:
        actions_read = [json.loads(line) for line in stream]
    assert len(actions_read) == len(lines)
    found = {}
    for line, action in zip(lines, actions_read, strict=True):
        columns = line.partition(" ")[0]
        path = b64decode(action["path_b64"]) if "path_b64" in action else action["path"].encode()
        if columns[0] == "+":
            columns = columns[1]
        elif columns.endswith(",kind"):
            columns = "A"
        assert path not in found, "told twice"
        found[path] = columns
    return found


@as_root
@some_examples
@given(tree=any_tree, done=edits)
def test_differences_equal_those_of_rsync(place: bytes, tree: Node, done: Sequence[Edit]) -> None:
    inner = tempfile.mkdtemp(dir=place)
    try:
        a, b = inner + b"/a", inner + b"/b"
        for top in (a, b):
            _build(top, tree)
        assert _of_fdiff(ONE, a, b, inner + b"/actions") == {}
        for edit in done:
            _edit(b, edit)
        expected = _of_rsync(a, b)
        assert _of_fdiff(TWO, a, b, inner + b"/actions") == expected
    finally:
        trees.remove_tree(inner)


groupings = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=12)


def _wrong(group: Sequence[tuple[int, int]]) -> set[int]:
    """Return names with different groupings, compared with the first name of their file."""
    first_of_a: dict[int, int] = {}
    first_of_b: dict[int, int] = {}
    wrong = set()
    for number, (a, b) in enumerate(group):
        firsts = first_of_a.setdefault(a, b), first_of_b.setdefault(b, a)
        if firsts != (b, a):
            wrong.add(number)
    return wrong


@some_examples
@given(group=groupings)
def test_hard_links_are_grouped_equally(place: bytes, group: Sequence[tuple[int, int]]) -> None:
    """Each name belongs to one of five files in A, and to one of five in B."""
    inner = tempfile.mkdtemp(dir=place)
    try:
        for side, top in enumerate((b"a", b"b")):
            pool = trees.make_directory(inner, b"pool of " + top)
            names = trees.make_directory(inner, top)
            for number, files in enumerate(group):
                file = b"%b/%d" % (pool, files[side])
                if not os.path.exists(file):
                    trees.write_file(file, b"same")
                    os.utime(file, ns=(1, 1))
                os.link(file, b"%b/%03d" % (names, number))
            os.utime(names, ns=(1, 1))
        finished = run_fdiff(TWO, inner + b"/a", inner + b"/b")
        found = {int(line.rpartition(b" ")[2]) for line in finished.out.splitlines()}
        assert found == _wrong(group)
        assert finished.code == (3 if found else 0)
    finally:
        trees.remove_tree(inner)
