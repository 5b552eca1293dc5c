"""Bad input: the right exit code and message for each, and everything else is copied.

Changes during a read are real: a thread removes, truncates and replaces files as they are copied,
and the copier is stopped by a signal at a known point. The claim is the same each time: a file at
the destination is one whole version of the source, or it is absent and reported.
"""

from __future__ import annotations

import os
import random
import signal
import stat
import threading

import pytest

from .judge import CONTENT, differences
from .running import (
    FOUR,
    ONE,
    TWO,
    Finished,
    Launcher,
    Run,
    document,
    run_fcp,
    some_launchers,
    without_rights,
)
from .trees import (
    FOREIGN_GID,
    FOREIGN_UID,
    MIB,
    build_failing,
    build_small_tree,
    content,
    make_directory,
    remove_tree,
    write_file,
)


def _read(path: bytes) -> bytes:
    with open(path, "rb") as stream:
        return stream.read()


@pytest.mark.parametrize("name", ["missing", "miss\ning\x1b[31m", "-missing"])
def test_missing_source_is_named(name: str, place: bytes) -> None:
    finished = run_fcp(TWO, "--", name, place + b"/copy")
    assert finished.code == 2
    assert "miss" in finished.said
    assert "No such file" in finished.said
    assert finished.err.count(b"\n") == 1
    assert b"\x1b" not in finished.err
    assert os.listdir(place) == []


@pytest.mark.parametrize(
    "options",
    [
        ["--preserv3"],
        ["--chunk-size", "4M"],
        ["-y"],
        ["--chunksize", "many"],
        ["--chunksize", "-4M"],
        ["--chunksize"],
        ["-j", "0"],
        ["-j", "-1"],
        ["-j", "two"],
        ["--progress", "sometimes"],
        ["--interval", "soon"],
        ["--preserve=mod"],
        ["--transport", "pigeon"],
    ],
    ids=" ".join,
)
def test_typo_in_an_option(options: list[str], place: bytes) -> None:
    source = write_file(place + b"/source", b"data")
    finished = run_fcp(None, source, place + b"/copy", *options)
    assert finished.code == 2
    assert finished.said.strip()
    assert "Traceback" not in finished.said
    assert options[0].lstrip("-").partition("=")[0] in finished.said
    assert os.listdir(place) == [b"source"]


def test_typo_gets_a_suggestion(place: bytes) -> None:
    source = write_file(place + b"/source", b"data")
    finished = run_fcp(None, "--chunk-size", "4M", source, place + b"/copy")
    assert (finished.code, "--chunksize" in finished.said) == (2, True)


@some_launchers
def test_unreadable_file_and_directory(launcher: Launcher, place: bytes) -> None:
    prefix = without_rights("dac_override", "dac_read_search")
    source, target = build_small_tree(place + b"/source"), place + b"/copy"
    secret = write_file(source + b"/directory 0/secret", b"secret", 0o000)
    large = write_file(source + b"/large secret", content(1, 9 * MIB), 0o200)
    locked = make_directory(source, b"locked")
    write_file(locked + b"/inside", b"inside")
    os.chmod(locked, 0o300)
    arguments = ("--json", place + b"/result", source, target)
    finished = run_fcp(launcher, *arguments, prefix=prefix)
    assert finished.code == 1, finished.said
    for path in (secret, large, locked):
        assert path.decode() in finished.said
    assert "Permission denied" in finished.said
    assert not os.path.lexists(target + b"/directory 0/secret")
    assert not os.path.lexists(target + b"/large secret")
    result = document(place + b"/result")
    assert (result["exit_code"], len(result["failures"])) == (1, 3)

    # Both trees are equal without the three entries.
    os.unlink(secret)
    os.unlink(large)
    remove_tree(locked)
    remove_tree(target + b"/locked")
    assert differences(source, target, CONTENT) == []


def test_unreadable_source_itself(place: bytes) -> None:
    source = write_file(place + b"/secret", b"secret", 0o000)
    finished = run_fcp(
        TWO, source, place + b"/copy", prefix=without_rights("dac_override", "dac_read_search")
    )
    assert finished.code == 1, finished.said
    assert "secret" in finished.said
    assert os.listdir(place) == [b"secret"]


def test_unwritable_directory_at_the_destination(place: bytes) -> None:
    source, target = build_small_tree(place + b"/source"), place + b"/target"
    os.chmod(make_directory(target, b"directory 1"), 0o555)
    finished = run_fcp(
        TWO, "-T", source, target, prefix=without_rights("dac_override", "dac_read_search")
    )
    assert finished.code == 1, finished.said
    assert "directory 1" in finished.said
    assert os.listdir(target + b"/directory 1") == []
    assert differences(source + b"/directory 2", target + b"/directory 2", CONTENT) == []
    assert _read(target + b"/large") == _read(source + b"/large")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away beforehand")
@pytest.mark.parametrize("size_bytes", [100, 9 * MIB])
def test_set_user_bit_is_not_given_to_a_wrong_owner(size_bytes: int, place: bytes) -> None:
    """If ``-p`` can't keep a foreign owner, it must not keep the set-user bit."""
    source = write_file(place + b"/source", content(1, size_bytes))
    os.chown(source, FOREIGN_UID, FOREIGN_GID)
    os.chmod(source, 0o6755)
    finished = run_fcp(TWO, "-p", source, place + b"/copy", prefix=without_rights("chown"))
    assert finished.code in (0, 1), finished.said
    if os.path.lexists(place + b"/copy"):
        status = os.stat(place + b"/copy")
        assert (status.st_uid, stat.S_IMODE(status.st_mode)) == (os.geteuid(), 0o755)
    else:
        refused = f"cannot set the attributes of '{os.fsdecode(place)}/copy': "
        assert (finished.code, refused in finished.said) == (1, True)


@pytest.mark.parametrize("launcher", [ONE, TWO], ids=str)
def test_fifo_as_the_source_does_not_hang(launcher: Launcher, place: bytes) -> None:
    os.mkfifo(place + b"/fifo")
    finished = run_fcp(launcher, place + b"/fifo", place + b"/copy")
    assert finished.code == 1, finished.said
    assert "fifo" in finished.said
    assert os.listdir(place) == [b"fifo"]


def _stop_in_the_middle(launcher: Launcher, source: bytes, place: bytes) -> tuple[Run, bytes]:
    """Start a copy of the large file `source`, and stop all its processes before it is done.

    Return the stopped run and the directory that it copies into.
    """
    for attempt in range(10):
        target = make_directory(place, b"target %d" % attempt)
        run = Run(launcher, "--json", place + b"/result", source, target)
        began = run.wait_for(target)
        if began:
            run.signal(signal.SIGSTOP)
            if not os.path.lexists(target + b"/source"):
                return run, target
        with run:  # Too late: it is done. End it and try again.
            continue
    pytest.fail("the copy was never seen unfinished")


@pytest.mark.parametrize("launcher", [ONE, FOUR], ids=str)
@pytest.mark.parametrize("size_after", [0, 5 * MIB + 7])
def test_large_file_that_shrinks(launcher: Launcher, size_after: int, place: bytes) -> None:
    source = write_file(place + b"/source", content(1, 64 * MIB) * 4)
    stopped, target = _stop_in_the_middle(launcher, source, place)
    with stopped as run:
        os.truncate(source, size_after)
        run.signal(signal.SIGCONT)
        finished = run.finish()
    assert finished.code == 1, finished.said
    assert source.decode() in finished.said
    assert os.listdir(target) == []
    (failure,) = document(place + b"/result")["failures"]
    assert (failure["errno"], failure["error"]) == (None, "changed"), "no call has failed"


@pytest.mark.parametrize("launcher", [ONE, FOUR], ids=str)
@pytest.mark.parametrize("replace", [False, True], ids=["vanishes", "is replaced"])
def test_a_large_file_that_is_removed_or_replaced(
    launcher: Launcher, replace: bool, place: bytes
) -> None:
    """A process that has it open may finish it, but must not mix it with its replacement."""
    data = content(1, 64 * MIB) * 4
    source = write_file(place + b"/source", data)
    stopped, target = _stop_in_the_middle(launcher, source, place)
    with stopped as run:
        if replace:
            os.rename(write_file(place + b"/other", content(2, 64 * MIB) * 4), source)
        else:
            os.unlink(source)
        run.signal(signal.SIGCONT)
        finished = run.finish()
    _judge_one_version(finished, target + b"/source", source, [data])


def _judge_one_version(
    finished: Finished, target: bytes, source: bytes, versions: list[bytes]
) -> None:
    if finished.code == 0:
        assert _read(target) in versions
    else:
        assert finished.code == 1, finished.said
        assert source.decode() in finished.said
        assert os.listdir(os.path.dirname(target)) == []


class Vandal(threading.Thread):
    """A thread that removes, truncates and replaces files of a directory until it is stopped.

    `versions` has all complete contents that each name ever had.
    """

    def __init__(self, directory: bytes, names: list[bytes]) -> None:
        super().__init__()
        self.directory = directory
        self.done = threading.Event()
        self.removed: set[bytes] = set()
        self.versions = {name: [_read(os.path.join(directory, name))] for name in names}

    def run(self) -> None:
        victims = random.Random(1).sample(sorted(self.versions), len(self.versions) // 2)
        for number, name in enumerate(victims):
            if self.done.is_set():
                return
            path, whole = os.path.join(self.directory, name), self.versions[name][0]
            if number % 3 == 0:
                self.removed.add(name)
                os.unlink(path)
            elif number % 3 == 1:
                self.versions[name].append(whole[: len(whole) // 3])
                os.truncate(path, len(whole) // 3)
            else:
                other = whole[::-1]
                self.versions[name].append(other)
                spare = write_file(os.path.join(os.path.dirname(self.directory), b"spare"), other)
                os.rename(spare, path)
            self.done.wait(0.0005)


@some_launchers
def test_files_that_change_under_the_copier(launcher: Launcher, place: bytes) -> None:
    source, target = make_directory(place, b"source"), place + b"/copy"
    for number in range(600):
        size_bytes = 9 * MIB if number % 100 == 0 else 1000 + 97 * number
        write_file(source + b"/%04d" % number, content(number, size_bytes))
    vandal = Vandal(source, os.listdir(source))
    arguments = ("--chunksize", "4M", "--json", place + b"/result", source, target)
    with Run(launcher, *arguments) as run:
        run.wait_for(target)
        vandal.start()
        finished = run.finish()
        vandal.done.set()
        vandal.join()

    assert finished.code in (0, 1), finished.said
    failures = document(place + b"/result")["failures"]
    assert (finished.code == 1) == bool(failures)
    assert set(os.listdir(target)) <= set(vandal.versions)
    for name, versions in vandal.versions.items():
        path = os.path.join(target, name)
        if os.path.lexists(path):
            assert _read(path) in versions, name
        else:
            # Removed before its directory was read, or a reported failure.
            named = os.path.join(source, name).decode() in finished.said
            assert named or name in vandal.removed, name


def test_names_are_escaped_in_messages(place: bytes) -> None:
    """No control character and no byte that is not UTF-8 reaches the terminal."""
    names = (b"esc\x1b[31m", b"new\nline", b"c1 \xc2\x9b31m", b"bad \xff\xfe", b"bell\x07\r\t\x7f")
    emoji = "emoji \N{GRINNING FACE}".encode()
    source, target = build_failing(place, *names, emoji)
    make_directory(place, b"specials")
    os.mkfifo(place + b"/specials/" + names[0])
    finished = run_fcp(TWO, source + b"/.", place + b"/specials", target)
    assert finished.code == 1, finished.said
    assert "skipping FIFOs such as" in finished.said
    shown = finished.said
    assert [c for c in shown if c != "\n" and (ord(c) < 32 or 127 <= ord(c) < 160)] == []
    for word in ("esc", "new", "c1 ", "bad ", "bell", "emoji \N{GRINNING FACE}"):
        assert f"/{word}" in shown


def test_names_in_an_ascii_locale(place: bytes) -> None:
    """A terminal that can't show a name is no reason to fail."""
    source, target = build_failing(place, "emoji \N{GRINNING FACE}".encode())
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": ""}
    finished = run_fcp(TWO, "-T", source, target, environment=plain)
    assert finished.code == 1, finished.said
    assert "/emoji" in finished.err.decode("ascii")


def test_a_closed_standard_output(place: bytes) -> None:
    """A closed pipe costs the summary, not the copy, and causes no traceback."""
    source = build_small_tree(place + b"/source")
    with Run(TWO, source, place + b"/copy") as run:
        assert run.process.stdout is not None
        run.process.stdout.close()
        finished = run.finish()
    assert "Traceback" not in finished.said
    assert "Exception ignored" not in finished.said
    assert differences(source, place + b"/copy", CONTENT) == []


def test_a_umask_that_removes_owner_permissions(place: bytes) -> None:
    """A directory that its creator may not enter is filled nevertheless, as by cp."""
    source = build_small_tree(place + b"/source")
    finished = run_fcp(
        TWO,
        source,
        place + b"/copy",
        umask=0o777,
        prefix=without_rights("dac_override", "dac_read_search"),
    )
    assert finished.code == 0, finished.said
    assert stat.S_IMODE(os.stat(place + b"/copy").st_mode) == 0
    for directory, _names, _files in os.walk(source):
        os.chmod(place + b"/copy" + directory[len(source) :], 0o700)
    for directory, _names, files in os.walk(place + b"/copy"):
        for name in files:
            path = os.path.join(directory, name)
            if not os.path.islink(path):
                assert stat.S_IMODE(os.stat(path).st_mode) == 0
                os.chmod(path, 0o600)
    assert differences(source, place + b"/copy", CONTENT) == []
