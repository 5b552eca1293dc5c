"""Filters by attributes of entries give the same results as GNU find on generated trees."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pcircle.cli.arguments import Parser
from pcircle.cli.options import CommonOptions
from pcircle.core.errors import UsageError
from pcircle.fs.scan import blocks
from pcircle.walk.attributes import KINDS, AttributeFilter, chooser_of

NOW_S = 1_700_000_000
SIZES = (0, 1, 511, 512, 4096, 5000)
PATTERNS = ("1", "[24]$", "^d0", "d1/(d|f).*3", r"\.x$", "e")


def _filter(*options: str) -> AttributeFilter:
    parser = Parser("t", "t", "", "")
    CommonOptions.add_to(parser)
    return CommonOptions.of(parser.parse_args(options)).attribute_filter


def _chosen(root: bytes, options: Sequence[str], *, follow: bool = False) -> set[bytes]:
    choose = chooser_of(_filter(*options), NOW_S * 10**9, follow=follow)
    found: set[bytes] = set()
    for folder, _, _ in os.walk(root):
        path = os.path.relpath(folder, root).removeprefix(b".")
        fd = os.open(folder, os.O_RDONLY)
        try:
            for block in blocks(fd):
                directories = list(block.directories)
                choose(block, path, fd)
                assert block.directories == directories
                names = [*block.files, *block.links, *block.specials]
                found.update(os.path.join(path, os.fsencode(name)) for name in names)
        finally:
            os.close(fd)
    return found


def _found(root: bytes, expression: Sequence[str], patterns: Sequence[str]) -> set[bytes]:
    """Return what find and then grep select."""
    command = ["find", ".", "!", "-type", "d", *expression, "-printf", r"%P\0"]
    said = subprocess.run(command, cwd=root, check=True, capture_output=True).stdout
    for pattern in patterns:
        grep = ["grep", "-zE", "-e", pattern]
        said = subprocess.run(grep, input=said, check=False, capture_output=True).stdout
    return set(said.split(b"\0")) - {b""}


def _grown(place: Path, random: Random) -> bytes:
    """Create a tree of all kinds, with times around now to the nanosecond and several owners."""
    root = os.fsencode(place)
    folders = [root]
    for number in range(4):
        folders.append(os.path.join(random.choice(folders), b"d%d" % number))
        os.mkdir(folders[-1])
    for number in range(60):
        path = os.path.join(random.choice(folders), random.choice((b"f%d", b"e\xff%d.x", b"g\n%d")))
        path %= number
        kind = random.choice("fffflps")
        if kind == "f":
            with open(path, "wb") as stream:
                stream.truncate(random.choice(SIZES))
        elif kind == "l":
            os.symlink(b"x" * random.randrange(1, 600), path)
        else:
            os.mknod(path, 0o600 | (stat.S_IFIFO if kind == "p" else stat.S_IFSOCK))
        if os.geteuid() == 0:
            owner, group = random.choice((0, 1, 4242)), random.choice((0, 2, 77777))
            os.chown(path, owner, group, follow_symlinks=False)
        at_ns = (NOW_S + random.choice((-90000, -3600, -1, 0, 1))) * 10**9 + random.choice(
            (0, 1, -1)
        )
        os.utime(path, ns=(at_ns, at_ns + random.choice((0, 10**9))), follow_symlinks=False)
    return root


def _time(random: Random, root: bytes) -> tuple[str, str]:
    """Return a time in the syntax of the option and in that of find."""
    at_s = NOW_S + random.choice((-90000, -3600, 0, 1))
    way = random.randrange(3)
    if way == 0 and at_s <= NOW_S:
        return f"{NOW_S - at_s}s", f"@{at_s}"
    if way == 1:
        part = random.choice(("", ".000000001", ".999999999"))
        return f"@{at_s}{part}", f"@{at_s}{part}"
    stamp = os.fsdecode(root) + f"-stamp{random.randrange(1 << 60)}"
    Path(stamp).touch()
    os.utime(stamp, ns=(0, at_s * 10**9 + 1))
    return f"file:{stamp}", f"@{at_s}.000000001"


def _asked(random: Random, root: bytes) -> tuple[list[str], list[str], list[str]]:
    """Draw options, the expression of find without the patterns, and the patterns."""
    options: list[str] = []
    find: list[str] = []
    letter = random.choice("mmac")
    times: tuple[tuple[str, list[str]], ...] = (("--newer-than", []), ("--older-than", ["!"]))
    for option, no in (time_pair for time_pair in times if random.random() < 0.4):
        ours, theirs = _time(random, root)
        options += [option, ours, f"--by-time={letter}time"]
        find += [*no, f"-newer{letter}t", theirs]
    if random.random() < 0.4:
        size = random.choice(SIZES)
        options += ["--min-size", str(size)]
        find += ["-size", f"+{size - 1}c"] if size else []
    if random.random() < 0.3:
        options += ["--max-size", "5000"]
        find += ["!", "-size", "+5000c"]
    for option, test, numbers in (("--owner", "-uid", (0, 1, 9)), ("--group", "-gid", (0, 2, 9))):
        if random.random() < 0.3:
            pair = random.sample(numbers, 2)
            options += [option, ",".join(map(str, pair))]
            find += ["(", test, str(pair[0]), "-o", test, str(pair[1]), ")"]
    if random.random() < 0.5:
        kinds = ",".join(random.sample(KINDS, random.randrange(1, 5)))
        options += ["--kind", kinds]
        find += ["-type", kinds]
    patterns = random.sample(PATTERNS, random.choice((0, 0, 1, 2)))
    for pattern in patterns:
        options += ["--match", pattern]
    return options, find, patterns


@pytest.mark.parametrize("seed", range(8))
def test_filters_agree_with_find(tmp_path: Path, seed: int, monkeypatch: Any) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    random = Random(seed)
    (tmp_path / "tree").mkdir()
    root = _grown(tmp_path / "tree", random)
    proper = 0
    for _ in range(25):
        options, find, patterns = _asked(random, root)
        chosen = _chosen(root, options)
        assert chosen == _found(root, find, patterns), (options, find)
        proper += 0 < len(chosen) < 60
    assert proper >= 5


def test_by_name(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    root = os.fsencode(tmp_path)
    user, group = path.owner(), path.group()
    assert _chosen(root, ["--owner", f"9999,{user}", "--group", group]) == {b"file"}
    assert _chosen(root, ["--owner", "9999"]) == set()


def test_followed_links_have_the_attributes_of_their_targets(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    root.mkdir()
    (tmp_path / "large").write_bytes(b"x" * 5000)
    (root / "link").symlink_to(tmp_path / "large")
    (root / "gone").symlink_to("nowhere")
    assert _chosen(os.fsencode(root), ["--min-size", "4k"]) == set()
    # Entries that cannot be looked up are kept, so that the tool reports them.
    assert _chosen(os.fsencode(root), ["--min-size", "4k"], follow=True) == {b"link", b"gone"}


class _Counted:
    def __init__(self) -> None:
        self.names: list[str] = []


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Counted]:
    """Return the number of look-ups that the filter makes."""
    counted = _Counted()
    real = os.stat

    def stat_(name: Any, **options: Any) -> os.stat_result:
        if isinstance(name, str) and "dir_fd" in options:
            counted.names.append(name)
        return real(name, **options)

    monkeypatch.setattr(os, "stat", stat_)
    yield counted
    monkeypatch.undo()


@pytest.mark.parametrize(
    ("options", "looked_up"),
    [
        (["--kind", "f,l,p,s,b,c", "--match", "a"], 0),
        (["--kind", "d"], 0),
        (["--kind", "f,p"], 1),  # the directory does not contain the type of a special file
        (["--kind", "l", "--min-size", "0"], 1),
        (["--match", "^a$", "--min-size", "0"], 1),
        (["--match", "a", "--match", "b", "--min-size", "0"], 0),
        (["--newer-than", "1d", "--min-size", "1", "--owner", "0", "--group", "0"], 4),
    ],
)
def test_only_necessary_entries_are_looked_up(
    tmp_path: Path, counted: _Counted, options: list[str], looked_up: int
) -> None:
    (tmp_path / "a").touch()
    (tmp_path / "b").touch()
    (tmp_path / "link").symlink_to("a")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "d").mkdir()
    _chosen(os.fsencode(tmp_path), options)
    assert len(counted.names) == looked_up, counted.names


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--newer-than", "soon"], "--newer-than: invalid value 'soon': expected a value such as"),
        (["--older-than", "file:/no/such"],
         "--older-than: cannot look up '/no/such': No such file or directory"),
        (["--by-time", "ctime"], "--by-time requires --newer-than or --older-than"),
        (["--min-size", "2k", "--max-size", "1k"], "--min-size is larger than --max-size"),
        (["--min-size", "x"], "--min-size: invalid size 'x'"),
        (["--owner", "no-such-user"], "--owner: unknown 'no-such-user'"),
        (["--group", "0,"], "--group: unknown ''"),
        (["--kind", "fl"], "--kind: invalid value 'fl': must be a comma-separated list of f, d, l"),
        (["--match", "a("], "--match: invalid value 'a(': invalid regular expression: "),
    ],
)  # fmt: skip
def test_refused_filters(options: list[str], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        _filter(*options)
    assert str(refused.value).startswith(said)
