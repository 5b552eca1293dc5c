"""Cases of rsync's own tests, run by both tools from the same start.

Each case builds a tree `a`, a tree `b` and the files of its options, runs rsync in one copy and
fmirror in another, and compares the results: every type, mode, owner, time, content, ACL and
attribute, and which names are linked. Where equality is intended, output lines are compared as
well.
"""

from __future__ import annotations

import os
import re
import stat
import subprocess
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from pcircle.fs.attributes.acls import ACCESS, DEFAULT
from tests.tools.fcp.running import TWO, Launcher
from tests.tools.fcp.trees import write_file

from .edits import LIST
from .running import as_root, every_launcher, needs_rsync, run_fmirror

pytestmark = [as_root, needs_rsync]
RSYNC = ["rsync", "-aHAXi", "--numeric-ids", "--modify-window=-1"]
_S = 10**9
_DEFAULT_LIST = bytes.fromhex("0200000001000700ffffffff04000500ffffffff20000500ffffffff")

Node = dict[str, Any]
"""A tree: names, each with a file's content, a `Node`, or a `Special`."""


class Special(NamedTuple):
    """An entry that is no plain file: a link to `text`, a hard link to a path, or a device."""

    kind: str
    text: str = ""


def link(text: str) -> Special:
    return Special("link", text)


def hard(path: str) -> Special:
    """Return a hard link to a path of the case."""
    return Special("hard", path)


PIPE, DEVICE = Special("pipe"), Special("device")


class Meta(NamedTuple):
    """A file or directory with special attributes."""

    what: Any
    mode: int | None = None
    owner: tuple[int, int] = (0, 0)
    time_s: float = 1000
    list_: bytes = b""
    default: bytes = b""
    attribute: str = ""


def build(top: str, node: Node) -> None:
    """Create the trees of a case; hard links come last, in order of paths."""
    later: list[tuple[str, str]] = []
    _build(top, node, top, later)
    for path, text in later:
        os.link(os.path.join(top, text), path, follow_symlinks=False)
    for here, directories, files in os.walk(top, topdown=False):
        for name in (*directories, *files):
            path = os.path.join(here, name)
            if path not in _TIMES:
                os.utime(path, (1000, 1000), follow_symlinks=False)
    for path, time_ns in _TIMES.items():
        os.utime(path, ns=(time_ns, time_ns), follow_symlinks=False)
    _TIMES.clear()


_TIMES: dict[str, int] = {}


def _build(path: str, what: Any, top: str, later: list[tuple[str, str]]) -> None:
    meta = what if isinstance(what, Meta) else Meta(what)
    what = meta.what
    if isinstance(what, dict):
        os.mkdir(path)
        for name, inner in what.items():
            _build(os.path.join(path, name), inner, top, later)
    elif isinstance(what, str):
        write_file(os.fsencode(path), what.encode())
    elif what.kind == "hard":
        later.append((path, what.text))
        return
    elif what.kind == "link":
        os.symlink(what.text, path)
    elif what.kind == "pipe":
        os.mkfifo(path)
    else:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))
    os.chown(path, *meta.owner, follow_symlinks=False)
    if meta.list_:
        os.setxattr(path, ACCESS, meta.list_)
    if meta.default:
        os.setxattr(path, DEFAULT, meta.default)
    if meta.attribute:
        os.setxattr(path, "user.one", meta.attribute.encode())
    if meta.mode is not None:
        os.chmod(path, meta.mode)
    if meta.time_s != 1000:
        _TIMES[path] = int(meta.time_s * _S)


def portrait(top: bytes) -> dict[bytes, tuple[object, ...]]:
    """Return everything below a directory, except times of directories that the source lacks.

    rsync changes these when it removes an entry. Directories in a backup are excluded: rsync
    creates no empty ones, and gives them their former modes.
    """
    found: dict[bytes, tuple[object, ...]] = {}
    names: dict[tuple[int, int], set[bytes]] = {}
    for here, directories, files in os.walk(top):
        for name in (*directories, *files):
            path = os.path.join(here, name)
            short, status = os.path.relpath(path, top), os.lstat(path)
            if short.startswith(b".fmirror-"):
                continue
            kind = stat.S_IFMT(status.st_mode)
            text = b""
            if kind == stat.S_IFREG:
                with open(path, "rb") as stream:
                    text = stream.read()
            elif kind == stat.S_IFLNK:
                text = os.readlink(path)
            if kind != stat.S_IFDIR:
                names.setdefault((status.st_dev, status.st_ino), set()).add(short)
            if kind == stat.S_IFDIR and (short + b"/").startswith(b"old/"):
                continue
            in_source = os.path.join(top, b"a", short.partition(b"/")[2])
            timed = kind != stat.S_IFDIR or os.path.isdir(in_source)
            attributes = tuple(
                (entry, os.getxattr(path, entry, follow_symlinks=False))
                for entry in sorted(os.listxattr(path, follow_symlinks=False))
            )
            known = status.st_mode, status.st_uid, status.st_gid, status.st_rdev, text, attributes
            found[short] = (*known, status.st_mtime_ns if timed else 0)
    for group in names.values():
        for entry in group:
            found[entry] += (sorted(group),)
    return found


_ESCAPED = re.compile(rb"\\#([0-7]{3})")


def lines_of(out: bytes) -> list[bytes]:
    """Return the sorted output lines, without targets of links."""
    found = []
    for line in out.splitlines():
        if line.startswith((b">f", b".f", b"cd", b".d", b"cL", b".L", b"cS", b"cD", b"h", b"*")):
            line = line.split(b" -> ")[0].split(b" => ")[0]
            if line[9:10] == b"a":  # the group bits are the mask of the list
                line = line[:5] + b"." + line[6:]
            found.append(line)
    return sorted(found)


class Case(NamedTuple):
    """A start, options of both, those of rsync alone, and of fmirror alone.

    `lines`: the output of both is equal. `codes` are rsync's and fmirror's.
    """

    node: Node
    both: Sequence[str] = ()
    rsync: Sequence[str] = ()
    ours: Sequence[str] = ()
    lines: bool = True
    codes: tuple[int, int] = (0, 0)


def files(*names: str) -> Node:
    return {name: name for name in names}


MANY: Node = {
    "one": {"x.c": "x", "x.o": "o", "deep": {"y.c": "y", "y.o": "o"}, "empty": {}},
    "two": files("keep", "p.c"),
    "l": link("one/x.c"),
    "pipe": PIPE,
    "null": DEVICE,
}
SURPLUS: Node = {
    "one": {"x.c": "x", "x.o": "old", "more.o": "", "deep": {"y.c": "y", "z": "z"}, "gone": {}},
    "two": {"keep": "other", "s.keep": ""},
    "all": {"in": {"it": "goes", "x.o": "o"}, "x.o": "o", "link": link("nowhere")},
    "single": Special("hard", "b/two/s.keep"),
    "socketlike": PIPE,
    "old link": link("x"),
    "x.o": "",
}
START: Node = {"a": MANY, "b": SURPLUS}


def swapped(kinds: dict[str, Any]) -> Node:
    """Return names of each type, which have each other type in the target."""
    pairs = [(one, other) for one in kinds for other in kinds if one != other]
    a = {f"{one} {other}": kinds[one] for one, other in pairs}
    return {"a": a, "b": {f"{one} {other}": kinds[other] for one, other in pairs}}


KINDS = {
    "file": "f",
    "empty": {},
    "full": {"x": "x"},
    "link": link("f"),
    "pipe": PIPE,
    "dev": DEVICE,
}
UNLIKE: Node = {
    "a": {
        "size": "longer",
        "time": Meta("same", time_s=2000.5),
        "older": Meta("1234", time_s=500),
        "newer": Meta("5678", time_s=3000),
        "mode": Meta("m", mode=0o4750),
        "owner": Meta("o", owner=(3, 4)),
        "list": Meta("l", list_=LIST),
        "no list": "n",
        "attribute": Meta("a", attribute="new"),
        "nanoseconds": Meta("n", time_s=1000.000000512),
        "dir": Meta({"in": "in"}, mode=0o2775, owner=(1, 2), time_s=77, default=_DEFAULT_LIST),
        "link": Meta(link("same"), owner=(5, 6), time_s=44),
        "text": link("one text"),
        "new": {"file": "f", "deep": {"er": {"f": "f"}}},
        "same bytes": "abc",
    },
    "b": {
        "size": "long",
        "time": "same",
        "older": Meta("4321", time_s=1500),
        "newer": Meta("8765", time_s=2000),
        "mode": Meta("m", mode=0o600),
        "owner": Meta("o", owner=(1, 1)),
        "list": "l",
        "no list": Meta("n", list_=LIST),
        "attribute": Meta("a", attribute="old"),
        "nanoseconds": "n",
        "dir": Meta({"in": "in"}, mode=0o700, time_s=88),
        "link": link("same"),
        "text": link("another"),
        "same bytes": "xyz",
    },
}
# Users in ACLs are mapped here, but by rsync only without --numeric-ids.
UNLISTED = {name: what for name, what in UNLIKE["a"].items() if name != "list"}
LINKED: Node = {
    "a": {
        "1": "one", "2": hard("a/1"), "d": {"3": hard("a/1"), "4": "four", "5": hard("a/d/4")},
        "l1": link("t"), "l2": hard("a/l1"), "p1": PIPE, "p2": hard("a/p1"), "apart": "apart",
        "parted": "apart",
    },
    "b": {
        "1": "one", "2": "one", "d": {"3": "one", "4": "four", "5": hard("b/1")},
        "apart": "apart", "parted": hard("b/apart"), "l1": link("t"), "l2": link("t"),
        "surplus": hard("b/1"),
    },
}  # fmt: skip
BESIDE: Node = {
    "a": {
        "same": "same", "mode": Meta("m", mode=0o640), "time": Meta("t", time_s=9), "new": "new",
        "d": {"in": "in", "other": "mine", "empty": {}}, "link": link("t"), "pipe": PIPE,
        "second": "only in the second", "both": "both",
        "kind": "a file",
    },
    "last": {
        "same": "same", "mode": "m", "time": "t", "d": {"in": "in", "other": "your", "empty": {}},
        "link": link("t"), "pipe": PIPE, "both": "both", "kind": {"x": "x"}, "gone": "gone",
    },
    "first": {"second": "only in the second", "both": "both", "d": {}},
    "b": {"surplus": "s"},
}  # fmt: skip
LONG: Node = {"f": "at the bottom"}
for _ in range(20):
    LONG = {"a rather long name, " * 7: LONG}

CASES: dict[str, Case] = {
    # ---- deletions
    "delete": Case(START, ["--delete"]),
    "nothing is deleted": Case(START),
    "excluded stays": Case(START, ["--delete", "--exclude=*.o"]),
    "excluded goes": Case(START, ["--delete", "--delete-excluded", "--exclude=*.o"]),
    "anchored": Case(START, ["--delete", "--exclude=/one/deep", "--exclude=/all/in"]),
    "directories only": Case(START, ["--delete", "--exclude=in/", "--exclude=keep/"]),
    "includes": Case(START, ["--delete", "--include=*/", "--include=*.c", "--exclude=*"]),
    "includes, all goes": Case(
        START, ["--delete", "--delete-excluded", "--include=*/", "--include=*.c", "--exclude=*"]
    ),
    "wild cards": Case(
        START, ["--delete", "--exclude=[x-z].?", "--exclude=**/it", "--exclude=/two/***"]
    ),
    "from a file": Case(
        START | {"rules": "# a remark\n\n+ more.o\n- *.o\n; another\n/two/\n"},
        ["--delete", "--exclude-from=rules"],
    ),
    "protected": Case(START, ["--delete"], ["--filter=P *.keep"], ["--protect=*.keep"]),
    "enough may go": Case(START, ["--delete", "--max-delete=100"]),
    "by size": Case({"a": {"s": "1", "l": "12345"}, "b": {"g": "1"}}, ["--max-size=2", "--delete"]),
    # ---- existing entries
    "existing": Case(START, ["--existing"]),
    "existing, deleted": Case(START, ["--existing", "--delete"]),
    "ignored": Case(UNLIKE, ["--ignore-existing"]),
    "neither": Case(START, ["--existing", "--ignore-existing", "--delete"]),
    "newer": Case(UNLIKE, ["-u"]),
    "attributes": Case(UNLIKE),
    "checksum": Case(UNLIKE, ["-c"]),
    "size only": Case(UNLIKE, ["--size-only"]),
    "all": Case(UNLIKE, ["-I"], lines=False),  # nothing else is compared for files that are copied
    "window": Case(
        {
            "a": {"f": Meta("old", time_s=2000), "g": Meta("new", time_s=4000)},
            "b": {"f": "now", "g": "now"},
        },
        ["--modify-window=1500"],
    ),
    "no window": Case(
        {"a": {"f": Meta("old", time_s=1001)}, "b": {"f": "now"}}, ["--modify-window=0"]
    ),
    # rsync names the contents of directories that are replaced, but not the directories.
    "kinds": Case(swapped(KINDS), ["--delete"], lines=False),
    "long": Case({"a": LONG, "b": {}}),
    "deep and gone": Case({"a": {}, "b": LONG}, ["--delete"], [], ["--allow-empty"]),
    # ---- backup
    "backup": Case(START, ["--delete", "--backup-dir=@/old"], ["-b"]),
    "backup, not deleted": Case(START, ["--backup-dir=@/old"], ["-b"]),
    "backup, excluded": Case(START, ["--delete", "--exclude=*.o", "--backup-dir=@/old"], ["-b"]),
    # ---- other trees: rsync prints the differences from their entries, fmirror the creation
    "link-dest": Case(BESIDE, ["--link-dest=@/last"], lines=False),
    "link-dest, two": Case(
        BESIDE, ["--link-dest=@/first", "--link-dest=@/last", "--delete"], lines=False
    ),
    "compare-dest": Case(BESIDE, ["--compare-dest=@/last"], lines=False),
    "compare-dest, two": Case(
        BESIDE, ["--compare-dest=@/first", "--compare-dest=@/last"], lines=False
    ),
    # ---- hard links: the output about the remaining one of several names differs
    "hard links": Case(LINKED, ["--delete"], lines=False),
    "hard links, none there": Case({"a": LINKED["a"], "b": {}}, lines=False),
    "hard links, one left out": Case(LINKED, ["--delete", "--exclude=2"], lines=False),
    # ---- lists
    "lists": Case(
        {
            "a": {
                "d": Meta({"f": Meta("f", list_=LIST)}, list_=LIST, default=_DEFAULT_LIST),
                "e": {},
            },
            "b": {"d": {"f": "f"}, "e": Meta({}, default=_DEFAULT_LIST)},
        },
    ),
    "what is new in a directory with a default": Case(
        {"a": {"f": "f", "d": {"g": "g"}}, "b": Meta({}, default=_DEFAULT_LIST)}
    ),
    "the group's bit of directories": Case(
        {"a": {"f": "f", "d": {"g": "g"}}, "b": Meta({}, mode=0o2775, owner=(0, 7))}
    ),
    # ---- owners and modes
    "chmod": Case(UNLIKE, ["--chmod=ug=rwX,o=,Dg+s"]),
    "chmod, two": Case(UNLIKE, ["--chmod=D2750,F640", "--chmod=u+x"]),
    "chown": Case(UNLIKE, ["--chown=8:9"]),
    "maps": Case({"a": UNLISTED, "b": {}}, ["--usermap=3:30,0-2:20", "--groupmap=*:5"]),
}  # fmt: skip


def result(place: bytes, case: Case, *, ours: bool) -> tuple[dict[bytes, Any], list[bytes], int]:
    """Return the result of a case: the trees, the lines and the exit code."""
    words = [*case.both, *(case.ours if ours else case.rsync)]
    options = [word.replace("@", os.fsdecode(place)) for word in words]
    if ours:
        done = run_fmirror(TWO, "-q", "-i", *options, "a", "b", cwd=place)
        code, out, said = done.code, done.out, done.said
    else:
        ran = subprocess.run([*RSYNC, *options, "a/", "b/"], capture_output=True, cwd=place)
        code, out, said = ran.returncode, ran.stdout, ran.stderr.decode()
    assert code == case.codes[ours], said
    return portrait(place), lines_of(out), code


@pytest.mark.parametrize("name", CASES)
def test_results_equal_those_of_rsync(place: bytes, name: str) -> None:
    case = CASES[name]
    both = [place + b"/rsync", place + b"/fmirror"]
    build(os.fsdecode(both[0]), case.node)
    subprocess.run(["cp", "-a", *both], check=True)
    theirs, their_lines, _ = result(both[0], case, ours=False)
    own, own_lines, _ = result(both[1], case, ours=True)
    different = {
        path: (theirs.get(path), own.get(path))
        for path in sorted(theirs.keys() | own.keys())
        if theirs.get(path) != own.get(path)
    }
    assert different == {}
    if case.lines:
        assert set(own_lines) ^ set(their_lines) == set()
        assert own_lines == their_lines


def both_from(place: bytes, node: Node) -> tuple[bytes, bytes]:
    """Create two copies of a start."""
    both = place + b"/rsync", place + b"/fmirror"
    build(os.fsdecode(both[0]), node)
    subprocess.run(["cp", "-a", *both], check=True)
    return both


def test_a_full_directory_is_replaced_only_with_delete(place: bytes) -> None:
    """Both tools leave it, and fail."""
    theirs, ours = both_from(place, swapped(KINDS))
    trees = [result(theirs, Case({}, codes=(23, 1)), ours=False)[0]]
    trees.append(result(ours, Case({}, codes=(23, 1)), ours=True)[0])
    full = [f"b/{kind} full/x".encode() for kind in KINDS if kind not in ("full", "empty")]
    assert all(name in tree for name in full for tree in trees)
    assert trees[0].keys() - trees[1].keys() == set()


def test_too_much_to_delete(place: bytes) -> None:
    """rsync removes as many as permitted; here nothing is removed, and the copies are equal."""
    theirs, ours = both_from(place, START)
    words = ["--delete", "--max-delete=3"]
    theirs_left = result(theirs, Case({}, words, codes=(25, 4)), ours=False)[0]
    ours_left = result(ours, Case({}, words, codes=(25, 4)), ours=True)[0]
    names = {f"b/{name}".encode() for name in SURPLUS}
    assert names <= ours_left.keys()
    assert {name for name in ours_left if name not in theirs_left} != set()
    for name in theirs_left.keys() & ours_left.keys():
        assert theirs_left[name][:6] == ours_left[name][:6], name


def test_a_list_of_files(place: bytes) -> None:
    """It copies the named entries and their parent directories, without the contents of these."""
    listed = "one/deep/y.c\ntwo\nl\npipe\n"
    node = START | {"list": listed, "b": {"two": {"s": "stays"}}}
    theirs, ours = both_from(place, node)
    assert listed_alike(ours, theirs, Case(node, ["--files-from=list"]))


def listed_alike(ours: bytes, theirs: bytes, case: Case) -> bool:
    """Return whether both results are equal, except for the time of B, which no list names."""
    trees = result(ours, case, ours=True)[0], result(theirs, case, ours=False)[0]
    for tree in trees:
        del tree[b"b"]
    return trees[0] == trees[1]


MORE = (
    ["-c"], ["-I"], ["--ctime"], ["--existing"], ["-u", "--ignore-existing"], ["--size-only"],
    ["--changed=auto"], ["--backup-dir=@/old"], ["--link-dest=@/last"], ["--compare-dest=@/last"],
    ["--exclude=keep"], ["--min-size=2"], ["--verify"], ["--resume"], ["--dry-run"],
    ["--chmod=F600"], ["--one-file-system"], ["--no-checkpoint"], ["--fsync"], ["--list-out=@/out"],
)  # fmt: skip


@every_launcher
def test_a_list_with_other_options(place: bytes, launcher: Launcher) -> None:
    """There is no internal error, and nothing outside of the list is touched."""
    listed = "one/deep/y.c\0two/keep\0one/x.c\0new/f\0"
    node = {"a": MANY | {"new": {"f": "f", "g": "g"}}, "b": SURPLUS, "last": MANY}
    for number, words in enumerate(MORE):
        top = b"%b/%d" % (place, number)
        build(os.fsdecode(top), node)
        with open(top + b"/list", "w") as stream:
            stream.write(listed)
        before = portrait(top)
        options = [word.replace("@", os.fsdecode(top)) for word in words]
        done = run_fmirror(launcher, "-q", "-0", "--files-from=list", *options, "a", "b", cwd=top)
        assert done.code == 0, (words, done.said)
        after = portrait(top)
        listed_names = {b"b/" + entry.encode() for entry in listed.split("\0")}
        assert {
            name for name in before if name.startswith(b"b/") and after.get(name) != before[name]
        } <= listed_names | {b"b/one", b"b/two", b"b/one/deep"}, words
        assert b"b/new/g" not in after


def test_listed_entries_are_missing(place: bytes) -> None:
    node = START | {"list": "one/x.c\nnowhere\ntwo/keep\n"}
    theirs, ours = both_from(place, node)
    assert listed_alike(ours, theirs, Case(node, ["--files-from=list"], codes=(23, 1)))


def test_a_backup_of_a_second_night(place: bytes) -> None:
    """rsync overwrites the backup of the first night; here both exist."""
    theirs, ours = both_from(place, {"a": {"f": "1"}, "b": {"f": "2"}})
    case = Case({}, ["--backup-dir=@/old"], ["-b"])
    for content in ("1", "three"):
        for top in (theirs, ours):
            with open(top + b"/a/f", "w") as stream:
                stream.write(content)
            result(top, case, ours=top == ours)
    assert os.listdir(theirs + b"/old") == [b"f"]
    assert sorted(os.listdir(ours + b"/old")) == [b"f", b"f.1"]


def test_a_target_whose_parent_is_missing(place: bytes) -> None:
    """rsync creates none without --mkpath."""
    theirs, ours = both_from(place, {"a": {"f": "1"}})
    done = subprocess.run([*RSYNC, "a/", "x/y/b/"], cwd=theirs, capture_output=True)
    assert done.returncode == 11
    assert run_fmirror(TWO, "-q", "a", "x/y/b", cwd=ours).code == 2
    assert os.listdir(ours) == [b"a"]
