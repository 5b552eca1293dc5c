"""Patterns select the same names as in rsync.

Hypothesis generates rules; ``rsync -a`` copies a tree of matching names with them, and the entries
that it copies must equal those that our rules select, walked from the top.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pcircle.walk.globs import Chooser, Rule, read_rule, read_rules

NAMES = (b"a", b"b", b"ab", b"a.o", b"*", b"a[b", b"]", b"\\", b"-", b"a\\b", b"\xff", b"a\nb")
TREE = tuple(
    path
    for top in (b"a", b"b", b"a.o")
    for path in (
        top + b"/",
        *(top + b"/" + name for name in NAMES if name not in (b"b", b"ab")),
        top + b"/b/",
        *(top + b"/b/" + name for name in NAMES if name != b"ab"),
        top + b"/b/ab/",
        top + b"/b/ab/a.o",
        top + b"/ab/",
        top + b"/ab/a",
        top + b"/ab/b/",
        top + b"/ab/b/a",
    )
) + tuple(name for name in NAMES if name not in (b"a", b"b", b"a.o"))

_PLAIN = (b"a", b"b", b"ab", b".o", b"\xff", b"-", b"/", b"/", b"\\")
_WILD = (b"*", b"**", b"***", b"?", b"[", b"]")
_SETS = (b"[ab]", b"[!a]", b"[^]]", b"[a-", b"-b]", b"[[:alpha:]]", b"[[:no:]]", b"[a/b]")
_ODD_SETS = (b"[\\]a]", b"[]-a]", b"[[:punct:]-]", b"[b-a]")
pieces = st.sampled_from([*_PLAIN, *_WILD, *_SETS, *_ODD_SETS])
patterns = st.lists(pieces, min_size=1, max_size=6).map(b"".join)
rules = st.lists(st.builds(Rule, st.booleans(), patterns), min_size=1, max_size=4)


@pytest.fixture(scope="module")
def tree() -> Iterator[bytes]:
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    top = os.fsencode(tempfile.mkdtemp(prefix="pcircle-test-", dir=memory))
    for path in TREE:
        whole = os.path.join(top, path)
        if path.endswith(b"/"):
            os.mkdir(whole)
        else:
            Path(os.fsdecode(whole)).touch()
    yield top
    shutil.rmtree(top)


@cache
def _rsync() -> str:
    rsync = shutil.which("rsync")
    if rsync is None:
        pytest.skip("rsync, the judge, is not installed")
    return rsync


def _chosen_by_rsync(tree: bytes, options: Sequence[bytes]) -> set[bytes]:
    """Return the paths that rsync would copy; directories end with a slash."""
    command = [_rsync().encode(), b"-a8n", b"--out-format=%n", *options]
    command += [tree + b"/", tree + b".new/"]
    finished = subprocess.run(command, check=True, capture_output=True)
    # rsync prints a newline in a name as \#012; a backslash is escaped only before #.
    lines = (line.replace(b"\\#012", b"\n") for line in finished.stdout.splitlines())
    return {line for line in lines if line != b"./" and not line.startswith(b"created directory")}


def _chosen_by_us(chosen: Chooser) -> set[bytes]:
    left = set(TREE)
    for path in sorted(TREE):
        asked = path.rstrip(b"/")
        asked = os.path.basename(asked) if chosen.by_name else asked
        if path in left and not chosen.chooses(asked, directory=path.endswith(b"/")):
            left = {p for p in left if p != path and not (path[-1:] == b"/" and p.startswith(path))}
    return left


def _options(rules: Sequence[Rule]) -> list[bytes]:
    return [(b"--include=" if rule.include else b"--exclude=") + rule.pattern for rule in rules]


@pytest.mark.slow
@settings(max_examples=100, deadline=None, derandomize=True)
@given(rules)
@example([Rule(True, b"*/"), Rule(True, b"*.o"), Rule(False, b"*")])
@example([Rule(True, b"/a/***"), Rule(False, b"*")])
@example([Rule(False, b"**/a")])
@example([Rule(False, b"b/**/a")])
@example([Rule(False, b"a\\b")])
@example([Rule(False, b"a\\b*")])
@example([Rule(False, b"b/a[b")])
@example([Rule(False, b"b[a/b]a")])
@example([Rule(False, b"/")])
@example([Rule(False, b"//")])
@example([Rule(False, b"**/")])
@example([Rule(False, b"**[[:no:]]")])
@example([Rule(False, b"a/***/")])
@example([Rule(True, b"b/***/"), Rule(False, b"*")])
@example([Rule(False, b"***/b/***/")])
def test_patterns_select_the_same_as_in_rsync(tree: bytes, rules: list[Rule]) -> None:
    assert _chosen_by_us(Chooser(rules)) == _chosen_by_rsync(tree, _options(rules))


def test_a_file_of_rules_is_parsed_as_rsync_does(tree: bytes, tmp_path: Path) -> None:
    text = b"# b\n; b\n\n- /a/b\n+ a.o\n*.o\r+ \xff\n"
    (tmp_path / "rules").write_bytes(text)
    read = list(read_rules(text, include=False))
    assert read == [
        Rule(False, b"/a/b"),
        Rule(True, b"a.o"),
        Rule(False, b"*.o"),
        Rule(True, b"\xff"),
    ]
    options = [b"--exclude-from=" + os.fsencode(tmp_path / "rules")]
    chosen = Chooser([rule for rule in read if rule is not None])
    assert _chosen_by_us(chosen) == _chosen_by_rsync(tree, options)


def test_an_exclamation_mark_clears_earlier_rules() -> None:
    assert list(read_rules(b"a\n!\n+ b", include=False)) == [
        Rule(False, b"a"),
        None,
        Rule(True, b"b"),
    ]


def test_with_null_a_line_end_is_part_of_a_pattern() -> None:
    assert list(read_rules(b"a\nb\0- c\0", include=True, null=True)) == [
        Rule(True, b"a\nb"),
        Rule(False, b"c"),
    ]


@pytest.mark.parametrize("text", [b"", b"+ ", b"- "])
def test_no_pattern_is_an_error(text: bytes) -> None:
    with pytest.raises(ValueError, match="empty pattern"):
        read_rule(text, include=False)


def test_the_line_of_an_error_is_reported() -> None:
    with pytest.raises(ValueError, match="line 3"):
        list(read_rules(b"a\n#\n- \n", include=False))
