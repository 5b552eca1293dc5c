"""Access control lists match those of setfacl, and all changes can be reverted."""

from __future__ import annotations

import os
import random
import re
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from pcircle import change
from pcircle.core.errors import UsageError
from pcircle.jobs.plan_output import Checksums
from tests.fusefs.fixture import Mount
from tests.fusefs.rules import Rule
from tests.programs import required
from tests.tools.fcp.access import drawn_seed
from tests.tools.fcp.running import ONE, TWO, Launcher, Run, without_rights
from tests.tools.frm.running import grow

from .running import (
    PROGRAMS,
    add_lists,
    build,
    changed,
    differences,
    every_launcher,
    pair,
    run_tool,
    snapshot,
)

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may set all owners and modes"),
    pytest.mark.skipif(shutil.which("setfacl") is None, reason="setfacl is not installed"),
]
NAMES = ("u:1001", "g:2002", "u:70000", "u:", "g:", "o:", "m:", "user:daemon", "default:group:3")
RIGHTS = ("r", "rw", "rwX", "-", "x", "5", "r-X", "rwx", "---")


def _small(top: bytes) -> None:
    os.mkdir(top)
    add_lists(top)
    grow(top, [f"plain/{bits}" for bits in range(8)])
    for bits in range(8):
        os.chmod(top + b"/plain/%d" % bits, bits << 6 | (7 - bits) << 3 | bits)


def _specification(rng: random.Random) -> tuple[list[str], list[str]]:
    """Draw options of fchmod, and of setfacl."""
    which = rng.randrange(10)
    kinds = ("", "", "", "d:")
    if which < 6:
        words = (f"{rng.choice(NAMES)}:{rng.choice(RIGHTS)}" for _ in range(rng.randrange(1, 4)))
        text = ",".join((rng.choice(kinds) if word[:3] != "def" else "") + word for word in words)
        return ["--acl", text], ["-m", text]
    if which < 8:
        words = (rng.choice(kinds) + rng.choice(NAMES[:3]) for _ in range(rng.randrange(1, 3)))
        text = ",".join(words)
        return [f"--acl-remove={text}"], ["-x", text]
    if which == 8:
        return ["--acl-remove"], ["-b"]
    text = f"{rng.choice(NAMES[:7])}:{rng.choice(RIGHTS)}"
    return ["--default-acl", text], ["-d", "-m", text]


def test_lists_match_setfacl(place: bytes) -> None:
    """Random lists are applied in sequence, so each starts with the previous results."""
    ours, theirs = pair(place, _small)
    rng = random.Random(seed := drawn_seed())
    for _ in range(40):
        options, judge = _specification(rng)
        changed("fchmod", ONE, "-R", *options, ours)
        subprocess.run(["setfacl", "-R", "-P", *judge, theirs], check=True)
        assert differences(ours, theirs) == [], (options, f"seed {seed}")


def test_a_list_without_a_required_entry_is_refused(place: bytes) -> None:
    """A list whose entries for named users and the owning group are removed limits nothing."""
    path = grow(place + b"/tree", ["file"]) + b"/file"
    subprocess.run(["setfacl", "-m", "u:1001:r", path], check=True)
    before = getfacl(path)
    counts = changed("fchmod", ONE, "--acl-remove=u:1001,g:", path, code=1)
    assert counts["failures"][0]["reason"].startswith("the list would lack an entry")
    assert getfacl(path) == before


def getfacl(top: bytes) -> bytes:
    command: list[str | bytes] = [required("getfacl"), "-R", "-P", "-p", "-n", top]
    return subprocess.run(command, check=True, capture_output=True).stdout


@every_launcher
def test_everything_is_restored(place: bytes, tmp_path: Path, launcher: Launcher) -> None:
    """An odd tree is restored, byte by byte in getfacl, including times and set-id bits."""
    top, undo = build(place + b"/tree"), str(tmp_path / "undo")
    before, judged = snapshot(top), getfacl(top)
    few = launcher.ranks or launcher.size == 4
    changes: list[tuple[str, list[str]]] = [
        ("fchmod", ["--mode", "u-s,go=u,a+t", "--owner", "5", "--group", "6",
                    "--acl", "u:1001:rwX,d:g:5:rx"]),
        ("fchmod", ["0"]),
        ("fchown", ["--no-setid", "7:8"]),
        ("fchmod", ["--acl-remove"]),
        ("fchgrp", ["--groupmap", "*:9"]),
    ]  # fmt: skip
    for tool, arguments in changes[:1] if few else changes:
        counts = changed(tool, launcher, "-R", "--undo", undo, *arguments, top)
        assert snapshot(top) != before
        lines = Path(undo).read_bytes().splitlines()
        # All names of a file may be recorded before the first of them is changed.
        assert len(lines) >= counts["changed"] + 2
        changed("fchown" if few else "fchmod", launcher, "--apply", undo)
        assert snapshot(top) == before, arguments
        os.unlink(undo)
    assert getfacl(top) == judged


def test_a_file_is_an_operand_that_is_restored(place: bytes, tmp_path: Path) -> None:
    grow(place, ["a", "d/b"])
    os.symlink(b"a", place + b"/link")
    before = snapshot(place)
    undo = str(tmp_path / "undo")
    options = ("--mode", "0", "--owner", "5", "--undo", undo)
    changed("fchmod", ONE, *options, "link", "d", "d/b", cwd=place)
    assert changed("fchmod", TWO, "--apply", undo)["changed"] == 3
    assert snapshot(place) == before


def test_replaced_entries_are_left(place: bytes, tmp_path: Path) -> None:
    top, undo = grow(place + b"/tree", ["a", "b", "c", "d/e", "x/y"]), str(tmp_path / "undo")
    changed("fchmod", ONE, "-R", "--undo", undo, "0700", top)
    for name in (b"a", b"d"):
        os.rename(top + b"/" + name, place + b"/" + name)
    os.unlink(top + b"/b")
    os.symlink(b"/etc/passwd", top + b"/b")
    grow(top, ["a", "d/e"])
    os.unlink(top + b"/c")
    counts = changed("fchmod", TWO, "--apply", undo, code=1)
    assert {failure["reason"] for failure in counts["failures"]} == {
        "it has changed since the plan was made"
    }
    assert len(counts["failures"]) == 3
    assert stat.S_IMODE(os.lstat(top + b"/x/y").st_mode) == 0o644
    assert stat.S_IMODE(os.lstat(top).st_mode) == 0o755


def test_other_files_are_refused(place: bytes, tmp_path: Path) -> None:
    top, undo = grow(place + b"/tree", ["a"]), tmp_path / "undo"
    changed("fchmod", ONE, "-R", "--undo", str(undo), "0700", top)
    text = undo.read_bytes()
    for wrong in (b"", b"{}\n", text.replace(b"fchmod", b"frm"), text.replace(b'"a"', b'"../a"')):
        undo.write_bytes(wrong)
        done = run_tool("fchmod", ONE, "--apply", str(undo))
        assert (done.code, "is not a plan for fchmod" in done.said) == (2, True), done.said
    undo.write_bytes(text)
    undo.chmod(0o666)
    assert run_tool("fchmod", ONE, "--apply", str(undo)).code == 2
    done = run_tool("fchmod", ONE, "--apply", str(undo), "--mode", "0")
    assert done.said.startswith("fchmod: --apply cannot be combined with ")


def _with_checksums(text: bytes) -> bytes:
    """Return the lines of a record with valid checksums."""
    bare = re.sub(rb',(?:"check":)?"[0-9a-f]{16}"(?=[\]}]$)', b"", text, flags=re.MULTILINE)
    return Checksums().added(bare)


def test_an_invalid_state_changes_nothing(place: bytes, tmp_path: Path) -> None:
    """Values that no entry could have had, such as a mode of -1, are not applied."""
    top, undo = grow(place + b"/tree", ["a"]), tmp_path / "undo"
    change(top, mode="0700", recursive=True, undo=str(undo), jobs=1)
    text, before = undo.read_bytes(), snapshot(top)
    many = b"9" * 5000
    for uid, mode, lists in (
        (b"-1", b"644", b"-,-"),
        (b"4294967295", b"644", b"-,-"),
        (many, b"644", b"-,-"),
        (b"0", b"-1", b"-,-"),
        (b"0", b"10000", b"-,-"),
        (b"0", many, b"-,-"),
        (b"0", b"0o644", b"-,-"),
        (b"0", b"644", b"z,0"),
    ):
        spoiled = re.sub(rb",0,0,\d+,-,-", b",%b,0,%b,%b" % (uid, mode, lists), text)
        assert spoiled != text
        undo.write_bytes(_with_checksums(spoiled))
        with pytest.raises(UsageError, match="is not a plan for fchmod"):
            change(apply=str(undo), jobs=1)
        assert snapshot(top) == before, (uid, mode, lists)
    for number in (b"-1", b"1"):
        undo.write_bytes(_with_checksums(text.replace(b"[0,", b"[%b," % number)))
        with pytest.raises(UsageError, match="is not a plan for fchmod: it has no PATH"):
            change(apply=str(undo), jobs=1)


def test_an_undo_record_is_not_overwritten(place: bytes, tmp_path: Path) -> None:
    """A repeated run finds most entries changed, and would lose their old attributes."""
    top, undo = grow(place + b"/tree", ["a"]), tmp_path / "undo"
    undo.touch()
    change(top, mode="0700", recursive=True, undo=str(undo), jobs=1)
    text = undo.read_bytes()
    with pytest.raises(UsageError, match="specify a different file"):
        change(top, mode="0700", recursive=True, undo=str(undo), jobs=1)
    assert undo.read_bytes() == text


def test_an_interrupted_change_can_be_undone_and_continued(
    place: bytes, fuse: Mount, tmp_path: Path
) -> None:
    """The interruption is a time limit, or a kill, whose last line may be incomplete."""
    mounted = fuse()
    names = [f"tree/{number % 7}/{number}/{name}" for number in range(40) for name in "abc"]
    grow(mounted.backing, names)
    top, undo = mounted.path + b"/tree", str(tmp_path / "undo")
    before = snapshot(mounted.backing)
    for limit_s in (0.7, 5, 30):  # a busy machine may change nothing in a short time
        mounted.rules(Rule(("setattr",), "tree/*", skip=60, delay_s=limit_s / 14))
        options = ("-R", "--threads", "1", "--stop-after", str(limit_s), "--undo", undo)
        done = run_tool("fchmod", ONE, *options, "0", top)
        assert done.code == 4, done.said
        mounted.rules()
        if snapshot(mounted.backing) != before:
            break
        Path(undo).unlink(missing_ok=True)
    assert snapshot(mounted.backing) != before
    assert run_tool("fchmod", ONE, "--apply", undo).code == 0
    os.unlink(undo)
    assert snapshot(mounted.backing) == before
    mounted.rules(Rule(("setattr",), "tree/*", skip=60, delay_s=3600))
    with Run(TWO, "-R", "--undo", undo, "0", top, program=PROGRAMS["fchmod"]) as started:
        while not mounted.state().delayed:
            pass
        started.kill()
        mounted.rules()
        mounted.release()
        started.wait_until_gone()
    with open(undo, "ab") as file:
        file.write(b'[0,"torn')
    applied = run_tool("fchmod", ONE, "--apply", undo)
    assert (applied.code, "incomplete" in applied.said) == (1, True)
    assert run_tool("fchmod", ONE, "-R", "0700", top).code == 0
    assert {entry.mode for path, entry in snapshot(mounted.backing).items() if path != b"."} == {
        0o700
    }


def test_failures_are_named_and_other_entries_changed(fuse: Mount) -> None:
    """This includes plain files that are changed in batches, and the directory of a failed file."""
    mounted = fuse()
    grow(mounted.backing, [f"tree/{number}/{name}" for number in range(9) for name in "abc"])
    mounted.rules(
        Rule(("setattr",), "tree/1/b", errno="EIO"),
        Rule(("setattr",), "tree/2", errno="EROFS"),
        Rule(("opendir",), "tree/3", errno="EIO"),
        Rule(("readdir", "readdirplus"), "tree/4", errno="EIO"),
        Rule(("setattr",), "tree/5/c", errno="ENOENT"),
    )
    counts = changed("fchmod", TWO, "-R", "0700", mounted.path + b"/tree", code=1)
    failed = {
        (failure["path"].rpartition("/tree/")[2], failure["error"])
        for failure in counts["failures"]
    }
    assert failed == {("1/b", "EIO"), ("2", "EROFS"), ("3", "EIO"), ("4", "EIO")}
    assert counts["vanished"] == 1
    mounted.rules()
    after = {path: entry.mode for path, entry in snapshot(mounted.backing + b"/tree").items()}
    left = {path for path, mode in after.items() if mode != 0o700}
    inside = {b"%d/%b" % (number, name) for number in (3, 4) for name in (b"a", b"b", b"c")}
    assert left - inside == {b"1/b", b"2", b"3", b"5/c"}


def test_immutable_entries(place: bytes) -> None:
    """Immutable entries are named, even if root owns them, and directory contents are changed."""
    if shutil.which("chattr") is None:
        pytest.skip("chattr is not installed")
    here = Path(__file__).parent / "immutable"  # a tmpfs may have no flags
    top = grow(os.fsencode(here), ["a/fixed", "a/free", "b/inner/free"])
    flagged = [top + b"/a/fixed", top + b"/b/inner"]
    done = subprocess.run(["chattr", "+i", *flagged], check=False, capture_output=True)
    try:
        if done.returncode:
            pytest.skip("the file system has no flags")
        counts = changed("fchown", TWO, "-R", "1", top, code=1)
        assert {failure["error"] for failure in counts["failures"]} == {"EPERM"}
        assert (counts["failed"], counts["changed"]) == (2, 5)
        counts = changed("fchmod", TWO, "-R", "0700", top, code=1)
        assert (counts["failed"], counts["changed"]) == (2, 5)
    finally:
        subprocess.run(["chattr", "-i", *flagged], check=False, capture_output=True)
        shutil.rmtree(top)


def test_a_user_changes_own_files(place: bytes, tmp_path: Path) -> None:
    """The user can undo it, even if the change revokes the user's own access."""
    top, undo = grow(place + b"/tree", ["d/e/f", "g"]), str(tmp_path / "undo")
    prefix = without_rights("dac_override", "dac_read_search", "chown", "fowner")
    before = snapshot(top)
    changed("fchmod", TWO, "-R", "--undo", undo, "0", top, prefix=prefix)
    assert stat.S_IMODE(os.lstat(top).st_mode) == 0
    assert changed("fchmod", ONE, "--apply", undo, prefix=prefix)["changed"] == 5
    assert snapshot(top) == before
