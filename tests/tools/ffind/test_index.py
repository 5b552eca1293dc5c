"""`--in`: an index gives the same answers as the tree, byte for byte, without accessing it."""

from __future__ import annotations

import os
import random
import struct
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pcircle.core.errors import StoppedEarly, UsageError
from pcircle.fs.stats import Stats
from pcircle.tools.ffind.eval.bulk import bulk_of
from pcircle.walk import index as form
from tests.fusefs.mounting import Mounted
from tests.programs import required
from tests.strace import read_calls
from tests.tools.fcp.running import ONE, TWO, Launcher, without_rights
from tests.tools.ffind.calling import find
from tests.tools.ffind.expressions import Answer, Words, answer, searches
from tests.tools.ffind.running import by_find, every_launcher, found, run_ffind
from tests.tools.ffind.test_expressions import COUNT
from tests.tools.fprof.running import run_fprof

LIVE = [
    ["-readable"], ["-writable"], ["-executable"], ["-xtype", "f"], ["-samefile", "/"],
    ["-fstype", "tmpfs"], ["-flags", "i"], ["-xattr"], ["-xattrname", "a"], ["-acl"], ["-capable"],
    ["-stripe-count", "1"], ["-pool", "a"], ["-layout", "released"], ["-delete"],
    ["-execdir", "true", ";"], ["-newerBt", "2020-01-01"], ["-printf", "%Y"], ["-printf", "%F"],
    ["-printf", "%Z"], ["-printf", "%B@"],
]  # fmt: skip


def _file(path: bytes, data: bytes) -> bytes:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)
    return path


def save_index(
    tree: bytes,
    file: bytes,
    *options: str | bytes,
    launcher: Launcher = TWO,
    cwd: bytes | None = None,
) -> bytes:
    """Create an index of a tree."""
    finished = run_fprof(launcher, "-q", "--save", file, "--entries", *options, tree, cwd=cwd)
    assert (finished.code, finished.said) == (0, "")
    return file


@pytest.fixture(scope="module")
def index(tree: bytes, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Create an index of the odd tree, below which all paths are relative to it."""
    file = os.fsencode(tmp_path_factory.mktemp("index") / "profile")
    finished = run_fprof(TWO, "-q", "--save", file, "--entries", ".", cwd=tree)
    assert (finished.code, finished.said) == (0, "")
    return file


def by_ffind(words: Words, *, acting: bool, within: bytes | None = None) -> Answer | None:
    """Return ffind's results, in this process; None if it requires the file system."""
    file = None if within is None else os.fsdecode(within)
    try:
        done = find(*words, jobs=1, threads=1, in_=file)
    except UsageError as error:
        if "requires the file system" in str(error) or "not in the index" in str(error):
            return None
        if "is not a directory" in str(error):  # a link followed by a slash
            return None
        raise
    return answer(words, done.report.exit_code, done.text, acting=acting)


@settings(max_examples=COUNT // 2)
@given(data=st.data())
def test_generated_expressions_match_the_tree(
    tree: bytes, index: bytes, data: st.DataObject
) -> None:
    here = os.getcwd()
    os.chdir(tree)
    try:
        acting = data.draw(st.booleans())
        words = data.draw(searches(acting=acting))
        try:
            answered = by_ffind(words, acting=acting, within=index)
        except UsageError:
            with pytest.raises(UsageError):
                by_ffind(words, acting=acting)
            return
        assume(answered is not None)
        assert answered == by_ffind(words, acting=acting), b" ".join(words)
    finally:
        os.chdir(here)


@pytest.mark.parametrize("words", LIVE, ids=" ".join)
def test_tests_of_the_file_system_are_refused_by_name(index: bytes, words: list[str]) -> None:
    for more in ([], ["-exclude"], ["!"], ["-name", "a", "-o"]):
        if more == ["-exclude"] and words[0] in ("-delete", "-execdir", "-printf"):
            continue
        with pytest.raises(UsageError, match=f"in_: {words[0]} requires the file system"):
            find(*more, *words, in_=os.fsdecode(index), jobs=1)


@pytest.mark.parametrize("option", ["-L", "-H"])
def test_no_link_is_followed(index: bytes, option: str) -> None:
    with pytest.raises(UsageError, match="requires the file system"):
        find(option, in_=os.fsdecode(index), jobs=1)


@pytest.mark.parametrize(
    "words",
    [
        ["--exclude", "a"],
        ["--polite"],
        ["--skip-offline"],
        ["--strict-operands", "/"],
        ["--apply", "a"],
    ],
    ids=" ".join,
)
def test_options_without_effect_are_refused(index: bytes, words: list[str]) -> None:
    finished = run_ffind(ONE, "--in", index, *words)
    assert finished.code == 2
    assert "cannot be combined with" in finished.said


def _odd(top: bytes) -> bytes:
    """Create names of every byte as files and directories, many, deep and linked ones."""
    for byte in set(range(1, 256)) - {ord("/"), ord(".")}:
        _file(b"%b/%c/%c\n" % (top, byte, byte), bytes(byte % 3))
    os.makedirs(top + b"/wide")
    for number in range(3000):
        os.mknod(b"%b/wide/%d" % (top, number))
    for number in range(700):
        os.mkdir(b"%b/wide/directory %d" % (top, number))
    os.link(top + b"/wide/1", top + b"/wide/hard")
    os.makedirs(top + b"/deep" + b"/level" * 400)
    os.makedirs(top + b"/empty/\x01")
    os.symlink(b"\xff\n", top + b"/empty/link")
    for _ in range(2):  # later reads do not change times again
        subprocess.run([b"find", top, b"-printf", b"%l"], capture_output=True, check=True)
    return top


def _same(here: bytes, there: bytes) -> bool:
    """Return whether two outputs have the same records, which end with NUL if there is any."""
    end = b"\0" if b"\0" in there else b"\n"
    return sorted(here.split(end)) == sorted(there.split(end))


def _by_find(*words: str | bytes, cwd: bytes) -> bytes:
    environment = {**os.environ, "LC_ALL": "C"}
    return subprocess.run(
        ["find", *words], cwd=cwd, env=environment, capture_output=True, check=True
    ).stdout


def _found_in_index(
    file: bytes, *words: str | bytes, launcher: Launcher = ONE, cwd: bytes | None = None
) -> bytes:
    finished = run_ffind(launcher, "--in", file, *words, cwd=cwd)
    assert finished.code == 0, finished.said
    return finished.out


EXPRESSIONS: list[list[str]] = [
    [],
    ["-empty"],
    ["-type", "d", "-empty"],
    ["-printf", "%p %P %d %s %m %n %i %D %T@ %C@ %l\\0"],
    ["-name", "*1*", "-prune", "-o", "-print"],
    ["-maxdepth", "1", "-mindepth", "1", "-type", "d", "-print0"],
    ["-depth", "-mindepth", "3", "-links", "+1"],
    ["-size", "0", "!", "-name", "*2*", "-fprint", "/dev/stdout"],
    ["-lname", "*\n", "-ls"],
]


@every_launcher
def test_every_launcher_gives_the_same(place: bytes, launcher: Launcher) -> None:
    top = _odd(place + b"/tree")
    file = save_index(top, place + b"/profile", launcher=launcher)
    expected = [_by_find(top, *words, cwd=place) for words in EXPRESSIONS[:-1]]
    expected.append(run_ffind(ONE, top, *EXPRESSIONS[-1]).out)
    # The tree is not accessed, so it may be missing.
    os.rename(top, place + b"/elsewhere")
    for words, there in zip(EXPRESSIONS, expected, strict=True):
        assert _same(_found_in_index(file, *words, launcher=launcher), there), words
    assert _same(_found_in_index(file, top, "-empty", launcher=launcher), expected[1])
    assert set(os.listdir(place)) == {b"profile", b"elsewhere", b"profile.entries"}


def test_each_directive_for_name_batches(place: bytes) -> None:
    """If a format has only these directives, its text is generated for the whole directory."""
    top = _odd(place + b"/tree")
    file = save_index(top, place + b"/profile")
    letters = [*"binsGUpPfhHdykmMug", *(a + b for a in "ACT" for b in ("@", "+", "Y", "s", "S"))]
    assert all(bulk_of(b"%" + letter.encode()) is not None for letter in letters)
    for letter in letters:
        words = ["-printf", f"%p %{letter}\\0"]
        assert _same(_found_in_index(file, *words), _by_find(top, *words, cwd=place)), letter


@pytest.mark.parametrize("rules", [False, True])
def test_any_way_of_reading_directories(
    place: bytes, fuse: Callable[..., Mounted], rules: bool
) -> None:
    """Blocks are read if directories have no size, or if names are filtered."""
    mounted = fuse()
    top = _odd(place + b"/tree" if rules else os.path.join(mounted.path, b"tree"))
    options = ["--exclude", "wide/17*", "--exclude", "/\n"] if rules else []
    file = save_index(top, place + b"/profile", *options)
    gone = ["(", "-path", "*/wide/17*", "-o", "-path", "*/tree/?", "-name", "\n", ")"]
    for words in (["-print0"], ["-type", "d", "-print0"], ["-printf", "%p %s %i %l\\0"]):
        prune = [*gone, "-prune", "-o"] if rules else []
        assert _same(_found_in_index(file, *words), _by_find(top, *prune, *words, cwd=place)), words


def test_no_call_is_made_on_the_tree(place: bytes) -> None:
    top = _odd(place + b"/tree")
    file = save_index(top, place + b"/profile")
    calls = place + b"/calls"
    words = ["-empty", "-o", "-lname", "*", "-o", "-size", "+0", "-printf", "%p %s %u %l\n", "-ls"]
    command: list[str | bytes] = [required("strace"), "-f", "-o", calls]
    command += ["-e", "trace=file,desc", "-s", "999"]
    ffind: list[str | bytes] = [sys.executable, "-m", "pcircle.tools.ffind", "-j2", "--in", file]
    done = subprocess.run([*command, *ffind, *words], capture_output=True, check=True)
    assert done.stdout.count(b"\n") > 1000
    on_tree = [call for call in read_calls(calls) if os.fsdecode(top) in call.text]
    # The remaining calls are the command itself, the index, and messages between processes.
    permitted = {"execve", "pread64", "read", "write", "writev", "sendmsg", "recvmsg"}
    assert [call for call in on_tree if call.name not in permitted] == []


def test_paths_restrict_it(place: bytes) -> None:
    top = _odd(place + b"/tree")
    file = save_index(b"tree", place + b"/profile", cwd=place)
    os.symlink(b"nowhere", place + b"/elsewhere")
    for paths in (
        [b"tree"], [b"./tree/"], [b"tree//wide"], [top + b"/wide"], [b"tree/a", b"tree/a/"],
        [b"tree/wide/17"], [b"tree/empty/link"], [b"tree/empty", b"tree/empty/link", b"tree/empty"],
        [b"tree/empty/./../deep/level"], [b"tree/wide/directory 7"], [b"tree/\x01"], [b"tree/\n/"],
    ):  # fmt: skip
        for words in (["-print0"], ["-maxdepth", "0"], ["-printf", "%p %P %H %h %f %d\\0"]):
            got = _found_in_index(file, *paths, *words, cwd=place)
            assert _same(got, _by_find(*paths, *words, cwd=place)), paths
    _file(place + b"/given", b"tree/wide\0tree/a")
    listed = found("--in", file, "-files0-from", place + b"/given", cwd=place)
    assert listed == by_find(b"tree/wide", b"tree/a", cwd=place)
    assert found("--in", file, cwd=place + b"/tree") == by_find(b"tree", cwd=place)
    assert found("--in", file, b"wide", cwd=top) == by_find(b"wide", cwd=top)
    for missing in (b"tree/nothing", b"/", b"tree/wide/17/", b"tree/wide/17/x", b"tre", b"treee"):
        finished = run_ffind(ONE, "--in", file, missing, cwd=place)
        assert finished.code == 2
        assert "is not in the index" in finished.said or "not a directory" in finished.said


def test_several_roots(place: bytes) -> None:
    for name in (b"a", b"a.b", b"c"):
        _file(place + b"/tree/" + name + b"/file", b"x")
    _file(place + b"/tree/plain", b"12")
    roots = [b"tree/a", b"tree/a.b", b"tree/plain"]
    finished = run_fprof(TWO, "-q", "--save", "p", "--entries", *roots, cwd=place)
    assert (finished.code, finished.said) == (0, "")
    words = ["-printf", "%p %P %s %y %d\n"]
    assert found("--in", "p", *words, cwd=place) == by_find(*roots, *words, cwd=place)
    got = found("--in", "p", b"tree/plain", b"tree/a/file", *words, cwd=place)
    assert got == by_find(b"tree/plain", b"tree/a/file", *words, cwd=place)
    assert run_ffind(ONE, "--in", "p", b"tree/c", cwd=place).code == 2


def test_other_devices_are_left_with_xdev(place: bytes, mount_tmpfs: object) -> None:
    assert callable(mount_tmpfs)
    inner = mount_tmpfs("size=1m")
    _file(inner + b"/deep/er/file", b"")
    _file(place + b"/z/file", b"")
    os.mkdir(place + b"/out")
    top = os.path.dirname(inner)
    os.makedirs(top + b"/tree")
    file = save_index(place + b"/z", place + b"/out/other")
    assert len(found("--in", file)) == 2
    whole, alone = place + b"/../whole of %d" % os.getpid(), place + b"/../alone %d" % os.getpid()
    try:
        save_index(place, whole)
        save_index(place, alone, "-x")
        there = by_find(place, "-xdev", cwd=place)
        assert found("--in", whole, place, "-xdev") == there
        assert found("--in", whole, place, "-mount", "-depth") == there
        assert found("--in", alone, place) == there
        assert found("--in", whole, inner, "-xdev") == by_find(inner, cwd=place)
        # The contents of a mount point that was not entered are unknown.
        assert inner not in found("--in", alone, place, "-empty")
    finally:
        for path in (whole, alone):
            os.unlink(path)
            os.unlink(path + form.ENDING)


def test_orders_lists_and_commands(place: bytes) -> None:
    top = _odd(place + b"/tree")
    _file(top + b"/large", bytes(5000))
    file = save_index(top, place + b"/profile")
    searches: list[list[str | bytes]] = [
        ["--sort", top, "-print0"],
        ["--top", "3", "--by", "size", top, "-type", "f"],
        [top, "-count"],
        [top, "-du"],
        [top, "-name", "1*", "-csv"],
        [top, "-name", "1*", "-json"],
        ["--list-out", "-", "-0", top, "-name", "3*"],
        [top, "-name", "directory 4*", "-exec", "echo", "x", "{}", ";"],
        [top, "-name", "directory 4*", "-exec", "echo", "{}", "+"],
        ["--stat=never", top, "-type", "l"],
        ["--sort", top, "-exclude", "-name", "wide"],
        ["--sort", top, "-depth", "-exclude", "-name", "wide"],
    ]
    for words in searches:
        there, from_index = run_ffind(ONE, *words), run_ffind(ONE, "--in", file, *words)
        assert there.code == from_index.code == 0, from_index.said
        if "--sort" in words or "--top" in words:
            assert from_index.out == there.out
        elif words[-1] == "+":
            assert sorted(from_index.out.split()) == sorted(there.out.split())
        else:
            assert _same(from_index.out, there.out), words
    assert len(run_ffind(TWO, "--in", file, top, "-print0", "-limit", "7").out.split(b"\0")) == 8
    assert run_ffind(TWO, "--in", file, top, "-name", "no such name", "-exists").code == 3
    finished = run_ffind(TWO, "--in", file, "-v", "-name", "1*")
    with closing(form.Index(file + form.ENDING)) as index:
        assert f"{index.entries:,} entries searched" in finished.said


def test_unreadable_entries_are_named(place: bytes) -> None:
    """They are named only where a search includes them, with the same exit code as in the tree."""
    top = place + b"/tree"
    for name in (b"shut/in", b"listed/in", b"passed/in/in", b"open/file"):
        _file(top + b"/" + name, b"x")
    for name, mode in ((b"shut", 0), (b"listed", 0o400), (b"passed", 0o100)):
        os.chmod(top + b"/" + name, mode)
    os.makedirs(place + b"/out", mode=0o777)
    prefix = without_rights("dac_override", "dac_read_search")
    file = place + b"/out/profile"
    finished = run_fprof(TWO, "-q", "--save", file, "--entries", top, prefix=prefix)
    assert finished.code == 1
    done = run_ffind(ONE, "--in", file, top, "-printf", "%p %m\n")
    assert done.code == 1
    lines = sorted(done.out.split(b"\n")[:-1])
    names = [(b"", 0o755), (b"/listed", 0o400), (b"/open", 0o755), (b"/open/file", 0o644)]
    names += [(b"/passed", 0o100), (b"/shut", 0)]
    assert lines == [b"%b%b %o" % (top, name, mode) for name, mode in names]
    for name in (b"shut", b"listed/in", b"passed"):
        assert os.fsdecode(name) in done.said
    assert "Permission denied" in done.said.replace("permission", "Permission")
    assert run_ffind(ONE, "--in", file, top + b"/open").code == 0
    assert run_ffind(ONE, "--in", file, top, "-maxdepth", "1").code == 0
    assert run_ffind(ONE, "--in", file, top, "-name", "listed", "-prune").code == 1
    assert found("--in", file, top, "-empty", code=1) == []


def test_a_damaged_index_is_refused(place: bytes) -> None:
    dice = random.Random(17)
    for number in range(40):
        _file(b"%b/tree/%d/%d" % (place, number % 5, number), b"")
    file = save_index(place + b"/tree", place + b"/profile") + form.ENDING
    with open(file, "rb") as stream:
        whole = stream.read()
    damaged = [whole[:length] for length in dice.sample(range(len(whole)), 40)]
    damaged += [whole + b"x", whole + whole, b"", b"\0" * 5000, whole[:100] + whole[101:]]
    for at in dice.sample(range(len(whole)), 150):
        damaged.append(whole[:at] + bytes([whole[at] ^ 1 << dice.randrange(8)]) + whole[at + 1 :])
    for number, data in enumerate(damaged):
        path = _file(b"%b/damaged %d" % (place, number), data)
        with pytest.raises(UsageError, match="damaged or not an index"):
            find("-name", "*", in_=os.fsdecode(path), jobs=1)
    newer = _file(place + b"/newer", b"pcircle index 2\n" + bytes(100))
    finished = run_ffind(TWO, "--in", newer)
    assert (finished.code, finished.out) == (2, b"")
    assert "it has version 2; only 1 can be read" in finished.said
    for other in (sys.executable, "/dev/null", place, place + b"/nothing"):
        assert run_ffind(ONE, "--in", other).code == 2


def _index_of(sections: list[bytes]) -> bytes:
    return b"".join(form.pieces([form.IndexedRoot(b"/tree", b"/tree")], sections, 1))


@pytest.mark.parametrize(
    "name", [b"..", b".", b"", b"a/../b", b"a\0b", b"/etc", b"a//b", b"a/"], ids=range(8)
)
def test_a_name_that_leads_elsewhere_is_refused(place: bytes, name: bytes) -> None:
    """The digest is valid, but the author of the file may be malicious."""
    stats = Stats()
    _file(place + b"/file", b"")
    fd = os.open(place, os.O_RDONLY)
    stats.look(fd, [b"file"])
    os.close(fd)
    status = os.stat(place)
    top = form.directory(0, b"", status)
    inner = form.directory(0, name, status)
    names = form.names(0, b"", [name], stats, [0], [])
    for number, sections in enumerate([[top, inner], [top, names]]):
        if number == 0 and not name:
            continue
        path = _file(b"%b/%d" % (place, number), _index_of(sections))
        finished = run_ffind(TWO, "--in", path, "-exec", "echo", "{}", ";")
        assert finished.code in (2, 4), finished.said
        assert finished.out in (b"", b"/tree\n")


@pytest.mark.parametrize(
    "section",
    [
        struct.pack("<I", 0xFFFFFFF0),
        struct.pack("<IBII", 9, 9, 0, 0),
        struct.pack("<IBII", 9, form.DIRECTORY, 0, 0),
        struct.pack("<IBII", 9, form.NAMES, 0, 1 << 31),
        struct.pack("<IBIIII", 17, form.NAMES, 0, 0, 1 << 31, 0),
        struct.pack("<IBIIII", 17, form.NAMES, 0, 0, 1, 1 << 31),
        struct.pack("<IBIIII", 18, form.NAMES, 0, 0, 1, 1) + b"a",
        struct.pack("<I", 0),
        b"\1",
    ],
    ids=range(9),
)
def test_impossible_sections_are_refused(place: bytes, section: bytes) -> None:
    path = _file(place + b"/index", _index_of([section]))
    finished = run_ffind(ONE, "--in", path, "-size", "+1")
    assert finished.code in (2, 4), finished.said
    assert "internal error" not in finished.said
    assert finished.out == b""


def test_requirements_of_saving_entries(place: bytes) -> None:
    _file(place + b"/tree/file", b"")
    _file(place + b"/list", b"file\n")
    tree, out = place + b"/tree", place + b"/profile"
    refused: list[list[str | bytes]] = [
        ["--entries", tree],
        ["--save", tree + b"/profile", "--entries", tree],
        ["--save", place + b"/nothing/profile", "--entries", tree],
        ["--save", out, "--entries", "--files-from", place + b"/list", tree],
        ["--save", "profile", "--entries", "--html", "profile.entries", tree],
        ["--merge", "--save", out, "--entries", tree],
    ]
    for words in refused:
        finished = run_fprof(ONE, "-q", *words, cwd=place)
        assert finished.code == 2, (words, finished.said)
    assert set(os.listdir(place)) == {b"tree", b"list"}
    assert os.listdir(tree) == [b"file"]
    save_index(tree, out)
    assert os.stat(out + form.ENDING).st_mode & 0o777 == 0o600
    assert set(os.listdir(place)) == {b"tree", b"list", b"profile", b"profile.entries"}
    os.unlink(out + form.ENDING)
    finished = run_ffind(ONE, "--in", out)
    assert finished.code == 2
    assert "--entries" in finished.said


def test_a_stopped_run_leaves_no_index(place: bytes) -> None:
    """An earlier index stays."""
    top = _odd(place + b"/tree")
    file = save_index(top, place + b"/profile")
    with open(file + form.ENDING, "rb") as stream:
        before: bytes = stream.read()
    limit = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 15, 1 << 15))"
    code = f"{limit}; from pcircle.tools.fprof.cli import main; sys.exit(main(sys.argv[1:]))"
    command: list[str | bytes] = [sys.executable, "-c", code, "-q", "-j2", "--save", file]
    command += ["--entries", top]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 4, done.stderr
    assert b"cannot write the index" in done.stderr
    assert set(os.listdir(place)) == {b"tree", b"profile", b"profile.entries"}
    with open(file + form.ENDING, "rb") as stream:
        assert stream.read() == before


def test_an_index_that_changes_meanwhile_stops_the_search(
    place: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    _file(place + b"/tree/file", b"")
    file = save_index(place + b"/tree", place + b"/profile") + form.ENDING
    verify = form.Index.verify

    def verified(self: form.Index) -> list[form.Range]:
        ranges = verify(self)
        _file(place + b"/tree/more", b"")
        save_index(place + b"/tree", place + b"/profile")
        return ranges

    monkeypatch.setattr(form.Index, "verify", verified)
    with pytest.raises(StoppedEarly, match="replaced during the search"):
        find(in_=os.fsdecode(file), jobs=1)
