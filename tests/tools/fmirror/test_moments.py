"""Killed, interrupted or failed at any changing call: no name ever lacks its content.

At any moment a run has done what its changing calls did before, so a kill in place of each of these
calls covers every possible moment. strace counts the calls of each thread separately, so those of
the busiest thread are covered; a hook in the interpreter counts the changes of names and attributes
by all threads together, up to the last removal and its record.
"""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from tests.attacks import hooked
from tests.conftest import SOAK
from tests.fusefs.fixture import Mount
from tests.fusefs.rules import Rule
from tests.strace import max_calls
from tests.tools.fcp.running import clean_environment, command, without_rights
from tests.tools.fcp.trees import remove_tree

from .edits import NAMES, Tree, cleared, copy_of
from .running import (
    FMIRROR,
    as_root,
    differences,
    mirrored,
    needs_rsync,
    needs_strace,
    run_fmirror,
)
from .test_judge import CHANGING

# A rank also wakes itself by writing into a pipe, and would hang if that failed.
_FAILING = CHANGING.replace(",write,", ",")

# At change number AT the process is killed, or the change fails with ERROR; without AT, changes are
# counted.
_HOOK = """
import os, sys, threading
from pcircle.fs import naming
made, lock = [0], threading.Lock()
NEW = os.O_CREAT | os.O_TMPFILE & ~os.O_DIRECTORY
def change(said=""):
    with lock:
        made[0] += 1
        now = made[0]
    if not AT:
        with open(LOG, "a") as log:
            log.write("x")
    if now == AT and ERROR:
        raise OSError(ERROR, os.strerror(ERROR))
    if now == AT:
        os.kill(os.getpid(), 9)
        threading.Event().wait()
def audited(event, arguments):
    opens = event == "open" and arguments[2] and arguments[2] & NEW and arguments[0] != LOG
    if opens or event in EVENTS:
        change(event)
rename = naming._rename
def renamed(*arguments):
    change()
    rename(*arguments)
naming._rename = renamed
sys.addaudithook(audited)
"""

# At rename number AT the process is killed, or the call fails with ERROR.
_SWAP = """
import os, sys
from pcircle.tools.fmirror.work.backup import Backup
from pcircle.fs import naming
at, error, rename = int(sys.argv[1]), int(sys.argv[2]), naming._rename
def renamed(*arguments):
    global at
    at -= 1
    if not at and error:
        raise OSError(error, os.strerror(error))
    if not at:
        os.kill(os.getpid(), 9)
    rename(*arguments)
naming._rename = renamed
backup, fd = Backup(os.path.abspath(b"old")), os.open("b", os.O_RDONLY)
try:
    assert backup.swap(b"inner/name", b".fcp-new", fd)
except OSError as failed:
    sys.exit(failed.errno)
"""
_EVENTS = (
    "chmod", "chown", "link", "mkdir", "remove", "removexattr", "rename", "rmdir", "setxattr",
    "symlink", "truncate", "utime",
)  # fmt: skip

pytestmark = [as_root, needs_rsync, needs_strace]
_DRAWN = 10
_DIRECTORIES, _EACH = 9, 20
_MORE = tuple(range(100, 108)) if SOAK else ()  # seeds of more nights
DURING = "--delete=during"
Content = tuple[int, bytes]


def contents_of(top: bytes) -> dict[bytes, Content]:
    """Return the type of each name, and its bytes or the text of its link."""
    found: dict[bytes, Content] = {}
    for here, directories, files in os.walk(top):
        for name in (*directories, *files):
            path = os.path.join(here, name)
            mode = os.lstat(path).st_mode
            text = b""
            if stat.S_ISREG(mode):
                with open(path, "rb") as stream:
                    text = stream.read()
            elif stat.S_ISLNK(mode):
                text = os.readlink(path)
            found[os.path.relpath(path, top)] = stat.S_IFMT(mode), text
    return found


def _spread(top: bytes) -> None:
    """Spread files over some directories, for a tree of two hundred entries."""
    for number in range(_DIRECTORIES):
        os.makedirs(top + b"/wide %d" % number)
        for name in range(_EACH):
            with open(top + b"/wide %d/%d" % (number, name), "xb") as stream:
                stream.write(b"%d of %d" % (name, number))


def _become(path: bytes, random: Random) -> None:
    """Change, remove, replace or rename a file, if there is any."""
    what = random.randrange(20)
    if what == 0:
        os.chmod(path, 0o4700)
    elif what == 1:
        os.rename(path, path + b" renamed")
    elif what == 2:
        os.link(path, path + b" linked")
    elif what < 6:
        os.unlink(path)
    if what == 3:
        os.symlink("elsewhere", path)
    elif what == 4:
        os.makedirs(path + b"/inner")
    elif what in (6, 7):
        with open(path, "ab") as stream:
            stream.write(b" has grown")


def night(place: bytes, seed: int) -> tuple[bytes, bytes]:
    """Create a tree that was mirrored yesterday and edited since, with files of each type."""
    source, target = cleared(place)
    tree = Tree(source, seed)
    _spread(source)
    for number in range(6):
        with open(source + b"/kept %d" % number, "xb") as stream:
            stream.write(b"old" * 1000)
    os.makedirs(source + b"/gone/deep")
    for name in NAMES:
        with open(source + b"/gone/deep/" + name, "xb") as stream:
            stream.write(b"surplus")
    copy_of(source, target)
    for number in range(4):
        with open(source + b"/kept %d" % number, "wb") as stream:
            stream.write(b"new" * 900)
    os.unlink(source + b"/kept 4")
    os.mkdir(source + b"/kept 4")
    remove_tree(source + b"/gone")
    with open(source + b"/gone", "xb") as stream:
        stream.write(b"a file now")
    for index in range(_DIRECTORIES * _EACH):
        number, inner = divmod(index, _EACH)
        _become(source + b"/wide %d/%d" % (number, inner), tree.random)
    for _ in range(12):
        tree.edit()
    return source, target


def _above(name: bytes) -> list[bytes]:
    """Return the directories on the way to a path."""
    parts = name.split(b"/")
    return [b"/".join(parts[:count]) for count in range(1, len(parts))]


def injected(place: bytes, what: str, source: bytes, target: bytes, word: str = "--delete") -> int:
    """Run it with a fault in its calls; return the exit code."""
    prefix = ["strace", "-f", "-o", "/dev/null", "-e", f"trace={CHANGING}"]
    calls = CHANGING if what.startswith("signal") else _FAILING
    prefix += ["-e", f"inject={calls}:{what}"] if what else []
    arguments: list[str | bytes] = [
        "-q",
        "-j1",
        "--threads=1",
        word,
        "--resume",
        source,
        target,
    ]
    return run_fmirror(None, *arguments, prefix=prefix).code


def changing_calls(place: bytes, log: Path, seed: int, word: str = "--delete") -> int:
    """Return the number of changing calls of the busiest thread."""
    source, target = night(place, seed)
    prefix = ["strace", "-f", "-o", str(log), "-e", f"trace={CHANGING}"]
    run_fmirror(None, "-q", "-j1", "--threads=1", word, source, target, prefix=prefix)
    return max_calls(log)


def moments(place: bytes, log: Path, seed: int, word: str = "--delete") -> list[int]:
    """Return the calls to hit: all in a soak, otherwise some."""
    count = changing_calls(place, log, seed, word)
    assert count > 20
    every = range(1, count + 1)
    return list(every) if SOAK else sorted(Random(seed).sample(every, _DRAWN))


@pytest.mark.parametrize("signal", ["KILL", "INT"])
@pytest.mark.parametrize(
    ("seed", "word"),
    [(5, "--delete"), (6, "--delete"), (5, DURING), *((seed, "--delete") for seed in _MORE)],
)
def test_a_signal_at_any_moment(
    place: bytes, tmp_path: Path, seed: int, word: str, signal: str
) -> None:
    """A signal that ends the job cleanly leaves a checkpoint, from which the next run continues."""
    for moment in moments(place, tmp_path / "calls", seed, word):
        source, target = night(place, seed)
        old, new = contents_of(target), contents_of(source)
        injected(place, f"signal={signal}:when={moment}", source, target, word)
        now = contents_of(target)
        for name in old.keys() & new.keys():
            if all(stat.S_ISDIR(side[above][0]) for above in _above(name) for side in (old, new)):
                assert now.get(name) in (old[name], new[name]), (moment, name)
        assert injected(place, "", source, target, word) == 0, moment
        assert differences(source, target) == "", moment


@pytest.mark.parametrize("word", ["--delete", DURING])
@pytest.mark.parametrize("error", ["EIO", "ENOSPC", "EACCES"])
@pytest.mark.parametrize("seed", [8, *_MORE])
def test_a_failure_at_any_moment(
    place: bytes, tmp_path: Path, seed: int, error: str, word: str
) -> None:
    for moment in moments(place, tmp_path / "calls", seed, word)[:: 1 if SOAK else 2]:
        source, target = night(place, seed)
        old, new = contents_of(target), contents_of(source)
        code = injected(place, f"error={error}:when={moment}", source, target, word)
        assert code in (0, 1, 2, 4, 70), (moment, code)
        now = contents_of(target)
        for name in old.keys() & new.keys():
            if os.path.dirname(name):
                continue
            assert now.get(name) in (old[name], new[name]), (moment, name)
        assert injected(place, "", source, target, word) == 0, moment
        assert differences(source, target) == "", moment


def hooked_run(
    pair: tuple[bytes, bytes], words: list[str], log: Path, at: int = 0, error: int = 0
) -> int:
    """Run it with a hook that hits or counts its changes; return the exit code."""
    fixed = f"AT, ERROR, LOG, EVENTS = {at}, {error}, {str(log)!r}, {{"
    fixed += ", ".join(f"'os.{event}'" for event in _EVENTS) + "}"
    arguments: list[str | bytes] = ["-q", "-j1", "--delete", "--resume", *words, *pair]
    line = hooked(command(None, arguments, FMIRROR), fixed + _HOOK, "pcircle.tools.fmirror.cli")
    return subprocess.run(
        line, capture_output=True, env=clean_environment(), timeout=240
    ).returncode


def everything(place: bytes) -> set[bytes]:
    """Return the bytes of all files, except those that a run writes for itself."""
    found = set()
    for here, _, files in os.walk(place):
        for name in files:
            path = os.path.join(here, name)
            if not name.startswith(b".") and stat.S_ISREG(os.lstat(path).st_mode):
                with open(path, "rb") as stream:
                    found.add(stream.read())
    return found


@pytest.mark.parametrize("error", [0, 5, 28, 13], ids=["KILL", "EIO", "ENOSPC", "EACCES"])
@pytest.mark.parametrize("words", [[], ["--backup-dir"], ["--moved"], [DURING]], ids=str)
@pytest.mark.parametrize("seed", [5, *_MORE])
def test_any_change_of_any_thread(
    place: bytes, tmp_path: Path, seed: int, words: list[str], error: int
) -> None:
    """With a backup no content is ever lost, wherever it is."""
    log = tmp_path / "changes"
    words = [
        os.fsdecode(b"%b=%b/old" % (word.encode(), place)) if "dir" in word else word
        for word in words
    ]
    assert hooked_run(night(place, seed), words, log) == 0
    every = range(1, log.stat().st_size + 1)
    assert len(every) > 60
    for moment in every if SOAK else sorted(Random(error + len(words)).sample(every, _DRAWN // 2)):
        source, target = pair = night(place, seed)
        os.rename(source + b"/kept 5", source + b"/moved")
        old, new, had = contents_of(target), contents_of(source), everything(target)
        code = hooked_run(pair, words, log, moment, error)
        assert code in ((0, 1, 2, 4) if error else (0, -9)), (moment, code)
        now = contents_of(target)
        for name in old.keys() & new.keys():
            if all(stat.S_ISDIR(side[above][0]) for above in _above(name) for side in (old, new)):
                assert now.get(name) in (old[name], new[name]), (moment, name)
        assert not any("dir" in word for word in words) or had <= everything(place), moment
        assert _is_backup_correct(place + b"/old", old), moment
        assert hooked_run(pair, words, log, 10**9) == 0, moment
        left = differences(source, target, *["--exclude=.fcp-mark-*"] * bool(error))
        assert left == "", moment  # a mark that can't be removed stays, and is reported


def _is_backup_correct(backup: bytes, old: dict[bytes, Content]) -> bool:
    """Return whether a backup has the former content of each name that the target had."""
    saved = contents_of(backup)
    return all(saved[name] == old[name] for name in saved.keys() & old.keys())


@pytest.mark.parametrize("error", [0, errno.EIO], ids=["KILL", "EIO"])
def test_each_moment_of_a_swap(place: bytes, error: int) -> None:
    """The name in the backup does not exist or has the old content, which is never lost."""
    taken, codes = place + b"/b/name", list[int]()
    while not codes or codes[-1]:
        for name in os.listdir(place):
            remove_tree(place + b"/" + name)
        for path in (taken, place + b"/old"):
            os.makedirs(path)
        for path, text in (taken + b"/content", b"old"), (place + b"/b/.fcp-new", b"new"):
            with open(path, "xb") as stream:
                stream.write(text)
        line = [sys.executable, "-c", _SWAP, str(len(codes) + 1), str(error)]
        codes.append(subprocess.run(line, cwd=place, env=clean_environment()).returncode)
        saved = place + b"/old/inner/name"
        assert os.path.isfile(taken) or os.path.isdir(taken), codes
        assert os.path.isdir(saved) or not os.path.lexists(saved), codes
        assert b"old" in everything(place), codes
    assert set(codes[:-1]) == {error or -9}
    assert len(codes) > 2
    assert os.listdir(place + b"/old/inner") == [b"name"]
    assert os.listdir(saved) == [b"content"]
    assert os.path.isfile(taken)


def _files(place: bytes, away: bytes) -> tuple[bytes, bytes]:
    """Create trees for a target on its own file system, without hard links."""
    for path in (place + b"/a", *(away + b"/" + name for name in os.listdir(away))):
        if os.path.isdir(path):
            remove_tree(path)
        elif os.path.lexists(path):
            os.unlink(path)
    source, target = place + b"/a", away + b"/b"
    for side, word in (source, b"new"), (target, b"old"):
        os.makedirs(side + b"/inner")
        for number in range(4):
            for name in (b"%d", b"inner/%d"):
                with open(side + b"/" + name % number, "xb") as stream:
                    stream.write(word * 700 * (number + 1) + side + name % number)
        os.symlink(word, side + b"/link")
    return source, target


@pytest.mark.parametrize("error", [0, 5, 28], ids=["KILL", "EIO", "ENOSPC"])
@pytest.mark.parametrize("refused", [(), ("link",), ("link", "rename2")], ids=" ".join)
def test_a_backup_on_a_limited_file_system(
    place: bytes, tmp_path: Path, fuse: Mount, refused: tuple[str, ...], error: int
) -> None:
    """Replaced content is never lost, and no name ever lacks its content, whatever is killed.

    The backup uses a hard link, otherwise an exchange of names, otherwise a copy.
    """
    mounted, log = fuse(), tmp_path / "changes"
    errors = {"link": "EPERM", "rename2": "EINVAL"}
    mounted.rules(*(Rule(ops=(word,), errno=errors[word]) for word in refused))
    words = ["--backup-dir=" + os.fsdecode(mounted.path) + "/old"]
    pair = _files(place, mounted.path)
    had = everything(mounted.path)
    assert hooked_run(pair, words, log) == 0
    assert differences(*pair) == ""
    assert contents_of(mounted.path + b"/old").keys() == contents_of(pair[0]).keys()
    assert had < everything(mounted.path)
    every = range(1, log.stat().st_size + 1)
    assert len(every) > 20
    for moment in every if SOAK else sorted(Random(error).sample(every, _DRAWN)):
        source, target = pair = _files(place, mounted.path)
        old, new, had = contents_of(target), contents_of(source), everything(mounted.path)
        code = hooked_run(pair, words, log, moment, error)
        assert code in ((0, 1, 2, 4) if error else (0, -9)), (moment, code)
        now = contents_of(target)
        for name in old.keys() & new.keys():
            assert now.get(name) in (old[name], new[name]), (moment, name)
        assert had <= everything(mounted.path), moment
        assert _is_backup_correct(mounted.path + b"/old", old), moment
        texts = {text for kind, text in contents_of(mounted.path).values() if stat.S_ISLNK(kind)}
        assert b"old" in texts, moment
        assert hooked_run(pair, words, log, 10**9) == 0, moment
        assert had <= everything(mounted.path), moment
        left = differences(source, target, *["--exclude=.fcp-mark-*"] * bool(error))
        assert left == "", moment


def test_a_backup_by_a_copy(place: bytes, fuse: Mount) -> None:
    """It has all attributes; special files and entries that change type are moved themselves."""
    mounted = fuse()
    source, target = _files(place, mounted.path)
    os.mkfifo(target + b"/fifo", 0o640)
    with open(source + b"/fifo", "xb") as stream:
        stream.write(b"now a file")
    os.unlink(source + b"/0")
    os.mkdir(source + b"/0")
    remove_tree(source + b"/inner")
    os.symlink("text", source + b"/inner")
    os.chmod(target + b"/1", 0o4751)
    os.setxattr(target + b"/1", "user.name", b"value")
    os.chown(target + b"/2", 3, 4)
    os.utime(target + b"/2", ns=(10**18 + 1, 10**18 + 2))
    os.truncate(target + b"/3", 3 << 20)
    names = b"1", b"2", b"3", b"fifo", b"0"
    had, before = contents_of(target), {name: os.lstat(target + b"/" + name) for name in names}
    mounted.rules(Rule(ops=("link",), errno="EPERM"), Rule(ops=("rename2",), errno="EINVAL"))
    old = mounted.path + b"/old"
    mirrored(None, "--delete", "--backup-dir", old, source, target)
    assert differences(source, target) == ""
    assert contents_of(old) == had
    for name, status in before.items():
        now = os.lstat(old + b"/" + name)
        wanted = status.st_mode, status.st_uid, status.st_gid, status.st_size, status.st_mtime_ns
        assert (now.st_mode, now.st_uid, now.st_gid, now.st_size, now.st_mtime_ns) == wanted, name
    assert os.getxattr(old + b"/1", "user.name") == b"value"


def test_a_copy_in_a_backup_loses_set_id_bits(place: bytes, fuse: Mount) -> None:
    """A copy that can't get its owner must not become a program that runs as the copying user."""
    mounted = fuse()
    source, target = _files(place, mounted.path)
    for name, owner in (b"1", (3, 4)), (b"2", (os.geteuid(), os.getegid())):
        os.chown(target + b"/" + name, *owner)
        os.chmod(target + b"/" + name, 0o6751)
    mounted.rules(Rule(ops=("link",), errno="EPERM"), Rule(ops=("rename2",), errno="EINVAL"))
    old = mounted.path + b"/old"
    as_user = without_rights("chown")
    done = run_fmirror(None, "-q", "--backup-dir", old, source, target, prefix=as_user)
    assert done.code == 0, done.said
    modes = {name: stat.S_IMODE(os.lstat(old + b"/" + name).st_mode) for name in (b"1", b"2")}
    assert modes == {b"1": 0o751, b"2": 0o6751}
