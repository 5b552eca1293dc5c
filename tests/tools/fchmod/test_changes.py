"""The effect and output of each option, compared with chmod and chown where they have it."""

from __future__ import annotations

import json
import os
import shlex
import stat
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from pcircle import change
from pcircle.core.errors import UsageError
from pcircle.tools.fchmod.cli import FCHGRP, FCHOWN
from pcircle.tools.fchmod.visitor import ModeVisitor
from tests.tools.fcp import trees
from tests.tools.fcp.running import ONE, TWO, Launcher, without_rights
from tests.tools.frm.running import grow, paths

from .running import changed, every_launcher, pair, run_tool, snapshot

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
BOUND = ("dac_override", "dac_read_search")
TREE = ["d/a", "d/b", "d/e/c", "d/f/g/h", "d/empty/"]


def plain(top: bytes) -> None:
    """Build a tree of plain names, with several modes and links."""
    grow(top, [f"{number}/{name}" for number in range(20) for name in "abc"])
    for number in range(20):
        os.chmod(top + b"/%d/a" % number, 0o600 + number)
        os.chmod(top + b"/%d" % number, 0o700 + number)
    os.symlink(b"1/a", top + b"/link")


def mode(path: bytes) -> int:
    return stat.S_IMODE(os.lstat(path).st_mode)


def modes(top: bytes) -> dict[bytes, int]:
    return {path: entry.mode for path, entry in snapshot(top).items()}


def lines(text: bytes) -> list[bytes]:
    return sorted(text.replace(b"/ours", b"/theirs").splitlines())


@root_only
@pytest.mark.parametrize("option", ["-c", "-v"])
def test_lines_are_those_of_chmod_and_chown(place: bytes, option: str) -> None:
    """They may be in any order, and chmod's lines about links are omitted."""
    ours, theirs = pair(place, plain)
    for tool, what in (
        ("fchmod", "g+w,o-x"),
        ("fchmod", "g+w"),
        ("fchown", "1001"),
        ("fchown", "nobody:1002"),
        ("fchown", ":1003"),
        ("fchgrp", "root"),
        ("fchown", "nobody"),
    ):
        done = run_tool(tool, TWO, option, "-q", "-R", what, ours)
        judge = subprocess.run([tool[1:], option, "-R", what, theirs], capture_output=True, env={})
        assert done.code == judge.returncode == 0, done.said
        assert lines(done.out) == lines(judge.stdout), what
    assert run_tool("fchmod", ONE, "-c", "-R", "g+w", ours).out == b""
    before = modes(ours)
    done = run_tool("fchmod", ONE, "-c", "--dry-run", "-R", "g-w", ours)
    assert done.out.count(b" would change from ") == len(before) - 1
    assert modes(ours) == before


def test_modes_of_files_and_of_directories(place: bytes) -> None:
    top = grow(place + b"/d", ["a", "e/c"])
    for options in (["--files", "640", "--dirs", "u=rwx,g=s"], ["f:640 d:u=rwx,g=s"],
                    ["f:640", "d:u=rwx,g=s"]):  # fmt: skip
        os.chmod(top + b"/e", 0o777)
        changed("fchmod", ONE, "-R", *options, top)
        assert (mode(top), mode(top + b"/e")) == (0o2705, 0o2707)
        assert mode(top + b"/a") == mode(top + b"/e/c") == 0o640
    changed("fchmod", ONE, "-R", "--files", "a+x", top)
    assert (mode(top + b"/a"), mode(top)) == (0o751, 0o2705)
    os.chmod(place + b"/d/a", 0o4711)
    changed("fchmod", ONE, "-R", "--reference", place + b"/d/a", top + b"/e")
    assert mode(top + b"/e/c") == mode(top + b"/e") == 0o4711


def test_operands(place: bytes) -> None:
    """A link given as PATH is followed unless -h or -P is given; without -R nothing is entered."""
    grow(place, TREE)
    os.symlink(b"d/a", place + b"/link")
    os.symlink(b"nowhere", place + b"/dangling")
    changed("fchmod", TWO, "611", "link", "d", "d/e/c", cwd=place)
    assert [mode(place + b"/d" + name) for name in (b"/a", b"", b"/e/c", b"/b")] == [
        0o611, 0o611, 0o611, 0o644,
    ]  # fmt: skip
    for option in ("-h", "-P"):
        assert changed("fchmod", ONE, option, "600", "link", cwd=place)["kept"] == 1
    assert mode(place + b"/d/a") == 0o611
    os.chmod(place + b"/d", 0o755)
    os.symlink(b"d", place + b"/to")
    assert changed("fchmod", ONE, "-R", "g+w", "to", cwd=place)["changed"] == len(paths(place)) - 3
    assert changed("fchmod", ONE, "-R", "g-w", ".", cwd=place)["kept"] == 3
    assert changed("fchmod", ONE, "700", "d/..", cwd=place)["directories"] == 1
    assert mode(place) == 0o700
    for wrong in ("missing", "dangling", "d/a/"):
        done = run_tool("fchmod", ONE, "600", "d/b", wrong, cwd=place)
        assert (done.code, mode(place + b"/d/b")) == (2, 0o644)
        assert f"fchmod: cannot access '{wrong}': " in done.said
    for slash in ("/", "//", "/etc/.."):
        done = run_tool("fchmod", ONE, "-R", "--dry-run", "u+r", slash)
        assert (done.code, "--no-preserve-root" in done.said) == (2, True)


@root_only
def test_owners_of_links(place: bytes) -> None:
    """Links are followed as PATH, but changed with -h or -R; -RH follows only PATH, like chown."""
    grow(place, TREE)
    os.symlink(b"d", place + b"/to")
    os.symlink(b"../b", place + b"/d/e/link")

    def owners() -> list[int]:
        return [os.lstat(place + name).st_uid for name in (b"/d", b"/to", b"/d/e/link", b"/d/b")]

    for arguments, expected in (
        (["11"], [11, 0, 0, 0]),
        (["-h", "12"], [11, 12, 0, 0]),
        (["-R", "13"], [11, 13, 0, 0]),
        (["-R", "-H", "14"], [14, 13, 14, 14]),
    ):
        changed("fchown", ONE, *arguments, "to", cwd=place)
        assert owners() == expected, arguments
    changed("fchmod", ONE, "-R", "--owner", "15", "--group", "16", "--mode", "0", "d", cwd=place)
    assert owners() == [15, 13, 15, 15]
    assert os.lstat(place + b"/d/e/link").st_gid == 16


@root_only
def test_owners_of_a_reference_file(place: bytes) -> None:
    """They are applied as by chown and chgrp, each with its own part."""
    grow(place, [*TREE, "model"])
    os.chown(place + b"/model", 21, 22)
    for tool, expected in (("fchgrp", (0, 22)), ("fchown", (21, 22))):
        changed(tool, ONE, "-R", "--reference", place + b"/model", place + b"/d")
        owners = {(entry.uid, entry.gid) for entry in snapshot(place + b"/d").values()}
        assert owners == {expected}


@root_only
def test_only_of_some_owners(place: bytes) -> None:
    grow(place, TREE)
    os.chown(place + b"/d/a", 5, 6)
    os.chown(place + b"/d/e", 5, 7)
    counts = changed("fchown", TWO, "-R", "--from", "5", "8", place + b"/d")
    assert (counts["changed"], counts["kept"]) == (2, len(paths(place)) - 2)
    assert changed("fchmod", ONE, "-R", "--from", "8:7", "0", place + b"/d")["changed"] == 1
    assert mode(place + b"/d/e") == 0
    assert changed("fchgrp", ONE, "-R", "--from", ":6", "9", place + b"/d")["changed"] == 1
    assert os.lstat(place + b"/d/a").st_gid == 9


@root_only
def test_ids_are_mapped(place: bytes) -> None:
    """The first rule that matches counts, and ids without a rule are listed."""
    names = grow(place + b"/d", [str(number) for number in range(8)])
    for number in range(8):
        os.chown(names + b"/%d" % number, 1000 + number, 2000 + number)
    maps = ["--usermap", "1000:11,1001-1003:12,1002:13,root:0,daemon:1", "--groupmap", "*:21"]
    done = run_tool("fchown", TWO, "-R", *maps, place + b"/d")
    assert done.code == 0, done.said
    found = [os.lstat(names + b"/%d" % number).st_uid for number in range(8)]
    assert found == [11, 12, 12, 12, 1004, 1005, 1006, 1007]
    assert {os.lstat(names + b"/%d" % number).st_gid for number in range(8)} == {21}
    unmapped = done.said.partition("users without a mapping: ")[2].splitlines()[0]
    assert sorted(unmapped.split(", ")) == [f"1 of {number}" for number in range(1004, 1008)]
    assert "groups that" not in done.said
    changed("fchmod", ONE, "-R", "--usermap", ":1,d?emon:0", place + b"/d")
    assert {os.lstat(names + b"/%d" % number).st_uid for number in range(8)} == {1}


@root_only
def test_set_id_bits_after_a_change_of_owner(place: bytes) -> None:
    """They are cleared as by the kernel, set again, or cleared on files but not directories."""
    top = grow(place + b"/d", ["suid", "sgid", "lock", "e/"])
    begun = {b"suid": 0o4755, b"sgid": 0o2755, b"lock": 0o2644, b"e": 0o2755}

    def after(*arguments: str) -> list[int]:
        for name, bits in begun.items():
            os.chown(top + b"/" + name, 0, 0)
            os.chmod(top + b"/" + name, bits)
        changed("fchown", ONE, "-R", *arguments, top)
        return [mode(top + b"/" + name) for name in begun]

    assert after("5") == [0o755, 0o755, 0o2644, 0o2755]
    assert after("--keep-setid", "5") == list(begun.values())
    assert after("--no-setid", "5") == [0o755, 0o755, 0o644, 0o2755]
    assert after("--no-setid", "0") == [0o755, 0o755, 0o644, 0o2755]
    assert after("0") == list(begun.values())  # nothing changes, so nothing is called
    assert after("--force", "0") == [0o755, 0o755, 0o2644, 0o2755]


def locked(top: bytes) -> None:
    """Create directories that their owner can't list or search, at several levels."""
    for bits in range(8):
        grow(top, [f"{bits}/file", f"{bits}/inner/file", f"{bits}/inner/deep/er/file"])
    for bits in range(8):
        os.chmod(top + b"/%d/inner/deep" % bits, bits << 6)
        os.chmod(top + b"/%d/inner" % bits, (7 - bits) << 6)
        os.chmod(top + b"/%d" % bits, bits << 6)


@pytest.mark.parametrize("launcher", [ONE, TWO], ids=str)
@pytest.mark.parametrize("text", ["u+rwX", "u=rwx", "700", "u+rx,g+w", "f:600 d:u+rwx"])
def test_permissions_are_granted_before_the_children(
    place: bytes, launcher: Launcher, text: str
) -> None:
    """So one run by a user changes everything, where chmod -R does."""
    ours, theirs = pair(place, locked)
    prefix = without_rights(*BOUND)
    counts = changed("fchmod", launcher, "-R", text, ours, prefix=prefix)
    if text[1] != ":":
        subprocess.run([*prefix, "chmod", "-R", text, theirs], check=True)
        assert modes(ours) == modes(theirs)
    assert counts["failed"] == 0
    assert counts["changed"] > 16


@pytest.mark.parametrize("launcher", [ONE, TWO], ids=str)
@pytest.mark.parametrize("text", ["000", "a-x", "u-r", "u=w", "a-rwx"])
def test_permissions_are_revoked_after_the_children(
    place: bytes, launcher: Launcher, text: str
) -> None:
    """Where chmod -R fails, the result is as if children had been changed first."""
    top = grow(place + b"/tree", [f"{number}/{name}" for number in range(9) for name in TREE])
    expected = place + b"/judge"
    subprocess.run(["cp", "-a", top, expected], check=True)
    prefix = without_rights(*BOUND)
    counts = changed("fchmod", launcher, "-R", text, top, prefix=prefix)
    assert (counts["failed"], counts["kept"]) == (0, 0)
    subprocess.run(["find", expected, "-depth", "-exec", "chmod", text, "{}", "+"], check=True)
    assert modes(top) == modes(expected)


def test_an_unlistable_directory_is_changed(place: bytes) -> None:
    """As by chmod -R, its own mode changes, and its unreadable contents are reported."""
    top = grow(place + b"/tree", ["shut/file", "open/file"])
    os.chmod(top + b"/shut", 0o300)
    prefix = without_rights(*BOUND)
    done = run_tool("fchmod", ONE, "-R", "-c", "g+w", top, prefix=prefix)
    assert done.code == 1
    assert f"fchmod: cannot read directory '{os.fsdecode(top)}/shut': Perm" in done.said
    assert done.out.count(b"changed from") == 4
    assert (mode(top + b"/shut"), mode(top + b"/shut/file")) == (0o320, 0o644)
    assert changed("fchmod", ONE, "g+x", top + b"/shut", prefix=prefix)["changed"] == 1


@every_launcher
def test_a_hard_linked_file_is_changed_and_counted_once(place: bytes, launcher: Launcher) -> None:
    """The mode is one that would change again if it were applied twice."""
    top = grow(place + b"/tree", [f"{number}/only" for number in range(150)])
    for number in range(60):
        first = grow(top, [f"{number}/first"]) + b"/%d/first" % number
        os.chmod(first, 0o721)
        for other in range(0, 150, 13):
            os.link(first, top + b"/%d/%d" % (other, number))
    counts = changed("fchmod", launcher, "-R", "f:u=g,g=o d:755", top)
    assert (counts["files"], counts["linked"]) == (150 + 60, 60 * 12)
    assert counts["changed"] == 150 + 60
    assert {mode(top + b"/%d/first" % number) for number in range(60)} == {0o211}


def test_a_vanished_name_leaves_the_file_to_its_other_names(
    place: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first name of a hard-linked file vanishes between look-up and open."""
    top = trees.make_directory(place, b"top")
    trees.write_file(top + b"/0", b"", 0o600)
    for name in (b"/1", b"/2"):
        os.link(top + b"/0", top + name)
    real, gone = ModeVisitor._one, list[bytes]()

    def vanishing(self: ModeVisitor, where: Any, name: bytes, *more: Any) -> None:
        if not gone:
            gone.append(name)
            os.unlink(top + b"/" + name)
        real(self, where, name, *more)

    monkeypatch.setattr(ModeVisitor, "_one", vanishing)
    result = change(top, mode="u+x", recursive=True, jobs=1)
    assert len(gone) == 1
    assert (result.counts["vanished"], result.counts["linked"]) == (1, 1)
    assert [mode(top + b"/" + name) for name in sorted(os.listdir(top))] == [0o700, 0o700]


def test_filters_select_changed_entries(place: bytes) -> None:
    top = grow(place + b"/tree", ["a.keep", "b", "d/a.keep", "d/b", "x/b"])
    os.utime(top + b"/d/b", (0, 0))
    counts = changed("fchmod", TWO, "-R", "--exclude", "*.keep", "--exclude", "x", "0700", top)
    assert (counts["changed"], counts["left_out"]) == (4, 3)
    assert mode(top + b"/a.keep") == mode(top + b"/x/b") == 0o644
    for options, changes in (
        (["--kind", "d"], [b"d", b"x", b"."]),
        (["--older-than", "30d"], [b"d/b"]),
        (["--match", "^x"], [b"x", b"x/b"]),
        (["--min-size", "1"], [b"a.keep", b"b", b"d/a.keep", b"d/b", b"x/b"]),
    ):
        before = modes(top)
        changed("fchmod", ONE, "-R", *options, "u+s,g+w,o+t", top)
        after = modes(top)
        assert {path for path in before if before[path] != after[path]} == set(changes), options
        subprocess.run(["chmod", "-R", "u-s,g-w,o-t", top], check=True)


@every_launcher
def test_lists_in_and_out(place: bytes, tmp_path: Path, launcher: Launcher) -> None:
    """A listed directory includes its contents with -R, and is alone without it."""
    top = grow(place + b"/tree", [*TREE, "d/\n", "d/#x"])
    listed, lines_out = str(tmp_path / "listed"), str(tmp_path / "lines")
    options = ["--list-out", listed, "-0", "--json-lines", lines_out]
    counts = changed("fchmod", launcher, "-R", *options, "0770", top)
    found = Path(listed).read_bytes().split(b"\0")[:-1]
    assert set(found) == {b".", *paths(top)}
    actions = [json.loads(line) for line in Path(lines_out).read_bytes().splitlines()]
    assert {(action["action"], action["state"], action["tool"]) for action in actions} == {
        ("chmod", "done", "fchmod")
    }
    assert len(actions) == counts["changed"] == len(found)
    few = tmp_path / "few"
    few.write_bytes(b"d/e\0d/f/g/h\0")
    options = ["--files-from", str(few), "-0"]
    assert changed("fchmod", launcher, *options, "0700", top)["changed"] == 2
    assert {path for path, bits in modes(top).items() if bits == 0o700} == {b"d/e", b"d/f/g/h"}
    assert changed("fchmod", launcher, "-R", *options, "0755", top)["changed"] == 3


def test_changes_per_second_are_limited(place: bytes) -> None:
    """Four hundred changes at a thousand a second take a measurable time."""
    top = grow(place + b"/tree", [f"{number}/x" for number in range(200)])
    began_s = time.monotonic()
    counts = changed("fchmod", ONE, "-R", "--ops-limit", "1000", "0711", top)
    assert time.monotonic() - began_s >= (400 - 100) / 1000
    assert counts["changed"] == 401


@root_only
def test_entries_of_other_users_are_counted_by_owner(place: bytes) -> None:
    """With -f they are not named, and with -ff they are not failures either."""
    top = grow(place + b"/tree", [f"d{number}/{name}" for number in range(3) for name in "ab"])
    for number in range(3):
        os.chown(top + b"/d%d/a" % number, 1, 1)
    os.chown(top + b"/d1/b", 54321, 1)
    prefix = without_rights("fowner", "chown")
    for options, code, messages in (([], 1, 4), (["-f"], 1, 0), (["-f", "-f"], 0, 0)):
        subprocess.run(["chmod", "-R", "755", top], check=True)
        done = run_tool("fchmod", TWO, "-R", *options, "700", top, prefix=prefix)
        assert done.code == code, done.said
        assert done.said.count("fchmod: cannot change mode of '") == messages
        assert "fchmod: not permitted: 3 of daemon, 1 of 54321\n" in done.said
        assert mode(top + b"/d1/b") == 0o755
        assert mode(top + b"/d0/b") == 0o700


def test_the_function(place: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    top = grow(place + b"/tree", TREE)
    result = change(top, mode="o-rwx", recursive=True, exclude=["a", "e"], jobs=1, changes=True)
    assert (result.tool, result.exit_code, result.counts["changed"]) == ("fchmod", 0, 7)
    result = change(top + b"/d/b", top + b"/d/a", files="0", jobs=1)
    assert (result.counts["files"], mode(top + b"/d/a")) == (2, 0)
    os.symlink("../b", top + b"/d/e/link")
    result = change(top + b"/d/e", mode="0711", recursive=True, L=True, jobs=1)
    assert (result.counts["changed"], mode(top + b"/d/b")) == (3, 0o711)
    with pytest.raises(UsageError, match="cannot access"):
        change(top + b"/missing", mode="0", jobs=1)
    with pytest.raises(UsageError, match="one of mode, owner"):
        change(top, jobs=1)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("tool", "arguments", "reason"),
    [
        ("fchmod", ["rwx", "x"], "invalid mode 'rwx'"),
        ("fchmod", ["-x", "x"], "invalid mode 'x'; to remove execute permission, write a-x"),
        ("fchmod", ["f:rw", "x"], "invalid mode 'rw'"),
        ("fchmod", [], "missing operand MODE"),
        ("fchmod", ["755"], "missing operand PATH"),
        ("fchmod", ["--owner", "no-such-user", "x"], "--owner: unknown user 'no-such-user'"),
        ("fchmod", ["--of-owner", "no-such", "0", "x"], "--of-owner: unknown 'no-such'"),
        ("fchmod", ["--acl", "u:1", "x"], "--acl: invalid entry 'u:1'"),
        ("fchmod", ["--acl", "u:1:rwz", "x"], "--acl: invalid entry 'u:1:rwz'"),
        ("fchmod", ["--undo", "u", "--dry-run", "0", "x"], "--undo cannot be combined with"),
        ("fchown", ["no-such-user:", "x"], "OWNER: unknown user 'no-such-user'"),
        ("fchown", ["--usermap", "1", "x"], "--usermap: invalid value '1': must be FROM:TO"),
        ("fchown", ["54321:", "x"], "OWNER: '54321' has no login group"),
        ("fchown", ["--keep-setid", "--no-setid", "1", "x"], "--keep-setid cannot be combined"),
        ("fchgrp", [], "missing operand GROUP"),
        ("fchgrp", ["-H", "-P", "1", "x"], "-H cannot be combined with -P"),
    ],
)
def test_refusals(place: bytes, tool: str, arguments: list[str], reason: str) -> None:
    grow(place, ["x"])
    before = snapshot(place)
    done = run_tool(tool, ONE, *arguments, cwd=place)
    assert (done.code, done.said.startswith(f"{tool}: {reason}")) == (2, True), done.said
    assert snapshot(place) == before


def test_an_empty_list_changes_nothing(place: bytes, tmp_path: Path) -> None:
    """Even PATH itself, which a list can name too, is unchanged."""
    top, names = grow(place + b"/tree", ["d/a"]), tmp_path / "names"
    for text, recursive, changed_there in (
        ("", False, 0),
        ("\n\n", True, 0),
        ("# none\n", False, 0),
        (".\n", False, 1),
        ("d\n", False, 1),
        ("d\n", True, 2),
        (".\nd/a\n", False, 2),
    ):
        names.write_text(text)
        before = snapshot(top)
        result = change(top, mode="0710", recursive=recursive, files_from=str(names), jobs=1)
        assert result.counts["changed"] == changed_there, text
        assert (snapshot(top) == before) == (not changed_there), text
        change(top, mode="0755", recursive=True, jobs=1)


MANY = "9" * 5000  # more digits than Python turns into a number


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"owner": "0" * 20 + MANY[:13]}, "owner: unknown user '0000"),
        ({"group": MANY}, "group: unknown group '9999"),
        ({"owner": "4294967295"}, "owner: unknown user '4294967295'"),  # no user, for the kernel
        ({"owner": "a\n\udcff"}, r"owner: unknown user 'a\x0a\xff'"),
        ({"usermap": f"{MANY}:0"}, "usermap: invalid value '9999"),
        ({"groupmap": f"0-{MANY}:0"}, "groupmap: invalid value '0-9999"),
        ({"usermap": "9-8:0"}, "usermap: invalid value '9-8:0': not a range of numbers"),
        ({"usermap": "\u0663:0"}, "usermap: unknown user '\u0663'"),
        ({"acl": f"u:{MANY}:r"}, "acl: unknown user '9999"),
        ({"acl": "u:\n"}, r"acl: invalid entry 'u:'"),
        ({"acl": "\x1b\udcff"}, r"acl: invalid entry '\x1b\xff'"),
    ],
)
def test_unknown_numbers_and_names(place: bytes, options: dict[str, Any], reason: str) -> None:
    grow(place, ["x"])
    with pytest.raises(UsageError) as caught:
        change(place + b"/x", **options, jobs=1)
    assert str(caught.value).startswith(reason)


def test_numbers_of_owners_may_begin_with_zeros(place: bytes) -> None:
    grow(place, ["x"])
    change(place + b"/x", owner="0" * 30 + "1234", jobs=1)
    change(place + b"/x", groupmap="+0:1", usermap="0001234-1235:0000000000004294967294", jobs=1)
    assert os.stat(place + b"/x").st_uid == 4294967294


@pytest.mark.parametrize("tool", ["fchown", "fchgrp"])
def test_help_of_fchown_and_fchgrp(tool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their help follows the rules of `tests/test_messages.py`."""
    monkeypatch.setenv("COLUMNS", "80")
    shell = {"fchown": FCHOWN, "fchgrp": FCHGRP}[tool]
    text = shell.parser().format_help()
    assert [line for line in text.splitlines() if len(line) > 80] == []
    examples = text.partition("\nExamples:\n")[2].splitlines()
    assert len(examples) == 4
    for line in examples:
        words = shlex.split(line)
        words = words[3:] if words[0] == "mpirun" else words
        assert words[0] == tool
        args = shell.parser().parse(words[1:], {})
        assert args.operands or args.apply


@root_only
def test_mount_points_are_crossed_without_x(place: bytes) -> None:
    """With -x the mount point itself is changed, but not entered."""
    top = grow(place + b"/tree", ["d/hidden", "on/"])
    command: list[str | bytes] = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", top + b"/on"]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        grow(top + b"/on", ["file"])
        changed("fchmod", TWO, "-R", "-x", "0700", top)
        assert (mode(top + b"/on"), mode(top + b"/on/file")) == (0o700, 0o644)
        changed("fchmod", TWO, "-R", "0750", top)
        assert (mode(top + b"/on"), mode(top + b"/on/file")) == (0o750, 0o750)
    finally:
        subprocess.run(["umount", top + b"/on"], check=True)
    # The directories have only plain files and are readable, like those that are processed at once.
    bind: list[str | bytes] = ["mount", "--bind", "/proc/sys/kernel/random", top + b"/on"]
    subprocess.run(bind, check=True)
    try:
        done = run_tool("fchmod", ONE, "-R", "u+r", top)
        assert (done.code, done.said.count("are not accepted")) == (1, 1)
    finally:
        subprocess.run(["umount", top + b"/on"], check=True)
    done = run_tool("fchmod", ONE, "-R", "u+r", "/proc/self/fdinfo")
    assert done.code in (1, 2)
    assert "names in /proc, /sys and /dev are not accepted" in done.said


@every_launcher
def test_many_levels_and_many_files(place: bytes, launcher: Launcher) -> None:
    """The tree is large enough to be divided; one directory is larger than a read."""
    trees.build_deep_tree(place + b"/deep", 1500)
    os.mkdir(place + b"/flat")
    for number in range(70_000):
        os.mknod(place + b"/flat/%d" % number, 0o640)
    counts = changed("fchmod", launcher, "-R", "0750", place + b"/deep", place + b"/flat")
    assert counts["files"] > 70_000
    assert counts["directories"] >= 1500
    assert counts["changed"] == counts["files"] + counts["directories"]
    judge: list[str | bytes] = [
        "find",
        place,
        "-mindepth",
        "1",
        "!",
        "-type",
        "l",
        "!",
        "-perm",
        "0750",
    ]
    assert subprocess.run(judge, check=True, capture_output=True).stdout == b""
