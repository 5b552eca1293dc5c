"""Targets that have changed since the interrupted run: recreated, emptied, restored.

A journal records the work in a target. If another file system is mounted there at the next run, its
root directory may well have the same inode number: tmpfs, ext4 and XFS always use the same number.
The owner may also have removed files and directories.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

import msgspec
import pytest

from pcircle.ops.checkpoint.store import VERSION, Checkpoint
from tests.tools.fcp.interrupts import checkpoints, committed, interrupt
from tests.tools.fcp.judge import CONTENT, METADATA, differences
from tests.tools.fcp.running import ONE, TWO, copy, document, run_fcp, without_rights
from tests.tools.fcp.trees import MIB, content, make_directory, write_file

KINDS = {"tmpfs": 0, "ext4": 320 * MIB, "xfs": 320 * MIB}
FILES = 600


class Volume:
    """A mounted file system that can be recreated in its place."""

    def __init__(self, kind: str, place: bytes) -> None:
        if os.geteuid() != 0:
            pytest.skip("only root may mount")
        if KINDS[kind] and shutil.which(f"mkfs.{kind}") is None:
            pytest.skip(f"mkfs.{kind} is not installed")
        self._kind = kind
        self.path = make_directory(place, b"volume")
        self._image = place + b"/image"
        self._mount()
        self.inode = os.stat(self.path).st_ino

    def _mount(self) -> None:
        if not KINDS[self._kind]:
            self._run("mount", "-t", self._kind, "none", self.path)
            return
        write_file(self._image, b"")
        os.truncate(self._image, KINDS[self._kind])
        self._run(f"mkfs.{self._kind}", "-q", self._image)
        self._run("mount", "-o", "loop", self._image, self.path)
        if self._kind == "ext4":
            os.rmdir(self.path + b"/lost+found")

    def _run(self, *command: str | bytes) -> None:
        finished = subprocess.run(command, check=False, capture_output=True)
        if finished.returncode != 0:
            pytest.skip(f"{command!r} does not work here: {finished.stderr!r}")

    def make_anew(self) -> None:
        """Mount an empty file system of the same type, whose root has the same inode number."""
        self.unmount()
        if KINDS[self._kind]:
            os.unlink(self._image)
        self._mount()
        assert os.stat(self.path).st_ino == self.inode, "else this test shows nothing"

    def unmount(self) -> None:
        subprocess.run(["umount", self.path], check=True)


@pytest.fixture
def volume(place: bytes) -> Iterator[Callable[[str], Volume]]:
    """Return a function that creates a volume of a type, unmounted at the end."""
    made: list[Volume] = []

    def make(kind: str) -> Volume:
        made.append(Volume(kind, place))
        return made[-1]

    yield make
    for mounted_volume in made:
        mounted_volume.unmount()


def build_source(place: bytes) -> bytes:
    """Build files in the root, in directories of one and three levels, and some with two names."""
    source = make_directory(place, b"source")
    for number in range(FILES):
        write_file(source + b"/%d" % number, b"root %d" % number)
    for letter in (b"a", b"b", b"c"):
        deep = make_directory(source, letter, b"mid", b"deep")
        for number in range(40):
            for folder in (source + b"/" + letter, os.path.dirname(deep), deep):
                write_file(folder + b"/%d" % number, b"%b %d" % (folder, number))
        os.link(source + b"/" + letter + b"/1", source + b"/1-" + letter)
    return source


def stop_midway(place: bytes, *arguments: str | bytes) -> None:
    """Kill a copy of some thousand operations when much of it was committed."""
    slowly = "--ops-limit", "600"
    interrupt(ONE, place, *slowly, *arguments, when=lambda: committed(place).names > FILES // 3)


def marks_in(*directories: bytes) -> list[bytes]:
    """Return the marks by which a copy recognizes directories of the target."""
    return [
        name
        for directory in directories
        for name in os.listdir(directory)
        if name.startswith(b".fcp-mark-")
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_a_recreated_file_system(kind: str, place: bytes, volume: Callable[[str], Volume]) -> None:
    """A tree, single files, and a tree among other sources are copied completely again."""
    source, made = build_source(place), volume(kind)
    target = made.path
    stop_midway(place, "-a", "-s", "-T", source, target)
    made.make_anew()
    finished = copy(TWO, "-a", "-s", "--resume", "--json", place + b"/r", "-T", source, target)
    assert differences(source, target, CONTENT) == []
    assert document(place + b"/r")["resumed"] == 0
    assert "is now a different directory" in finished.said
    assert marks_in(target) == []

    made.make_anew()
    singles = [source + b"/%d" % number for number in range(FILES)]
    checkpoint_options: list[str | bytes] = ["--checkpoint-dir", make_directory(place, b"kept")]
    arguments: list[str | bytes] = [*checkpoint_options, "-a", *singles, source + b"/a", target]
    stop_midway(place + b"/kept", *arguments)
    made.make_anew()
    copy(TWO, "--resume", *arguments)
    for single in singles:
        there = Path(os.fsdecode(target), os.fsdecode(os.path.basename(single)))
        assert there.read_bytes() == Path(os.fsdecode(single)).read_bytes()
    assert differences(source + b"/a", target + b"/a", CONTENT) == []
    assert marks_in(target, target + b"/a") == []


def build_nested(place: bytes) -> bytes:
    """Build directories of several levels that complete early, and a large file that takes long."""
    source = make_directory(place, b"source")
    write_file(source + b"/large", content("large", 224 * MIB))
    for letter in (b"a", b"b", b"c", b"d", b"e", b"f"):
        deep = make_directory(source, letter, b"mid", b"deep")
        for folder in (source + b"/" + letter, os.path.dirname(deep), deep):
            for number in range(12):
                write_file(folder + b"/%d" % number, b"%b %d" % (folder, number))
    for letter in (b"a", b"c", b"e"):
        os.link(source + b"/" + letter + b"/1", source + b"/" + letter + b"/mid/1 again")
    for number in range(80):
        write_file(source + b"/%d" % number, b"%d" % number)
    return source


def files_below(path: bytes) -> list[Path]:
    """Return the files of a tree."""
    return [below for below in Path(os.fsdecode(path)).rglob("*") if below.is_file()]


def stop_in_large(place: bytes, source: bytes, target: bytes, *options: str | bytes) -> None:
    """Kill a copy when the directories below the root and a part of the large file are done."""
    options = ("--chunksize", "4M", "--bwlimit", "12M", "--ops-limit", "100000", *options)

    def is_done() -> bool:
        done = committed(place)
        return done.directories == 18 and done.parts > 1

    # Linking a name of an inode takes several steps, each of which waits for a chunk: with one rank
    # they take no second.
    interrupt(ONE, place, *options, "-T", source, target, when=is_done)


def put_back(path: bytes, data: bytes) -> None:
    """Replace a file by another one, like editors and tools that restore backups do."""
    os.rename(write_file(path + b".new", data), path)


@pytest.mark.parametrize("options", [(), ("-a", "-s", "--verify")], ids=["plain", "signed"])
def test_completed_directories_that_have_changed(
    options: tuple[str, ...], place: bytes, volume: Callable[[str], Volume]
) -> None:
    """Deep files removed, directories emptied and restored, other files, another mount.

    ext4 reuses the numbers of removed directories.
    """
    source, target = build_nested(place), volume("ext4").path
    other = make_directory(target, b"f")
    subprocess.run(["mount", "-t", "tmpfs", "none", other], check=True)
    try:
        stop_in_large(place, source, target, *options)
        times_ns = {path: path.stat().st_ctime_ns for path in files_below(target + b"/d")}
        for number in range(12):
            os.unlink(target + b"/a/mid/deep/%d" % number)
        for path in (target + b"/b/mid", target + b"/c/mid"):
            shutil.rmtree(path)
            os.mkdir(path)
        os.mkdir(target + b"/c/mid/deep")
        for number in range(12):
            write_file(target + b"/c/mid/%d" % number, b"an older version")
            write_file(target + b"/c/mid/deep/%d" % number, b"an older version")
        put_back(target + b"/e/mid/3", b"an older version")
        for number in range(40):
            with suppress(FileNotFoundError):  # some may not be copied yet
                os.unlink(target + b"/%d" % number)
        subprocess.run(["umount", other], check=True)
        subprocess.run(["mount", "-t", "tmpfs", "none", other], check=True)
        finished = copy(TWO, *options, "--resume", "--json", place + b"/r", "-T", source, target)
        assert differences(source, target, CONTENT) == []
        assert document(place + b"/r")["resumed_bytes"] > MIB, "the large file was gone on with"
        assert len(times_ns) == 36
        now = {path: path.stat().st_ctime_ns for path in times_ns}
        assert now == times_ns, "what was done and is there is not done again"
        if options:
            whole = run_fcp(ONE, "-s", "--no-checkpoint", "-T", source, place + b"/whole")
            assert finished.out.split()[0] == whole.out.split()[0]
    finally:
        subprocess.run(["umount", other], check=True)


def test_a_second_interruption_after_the_target_was_recreated(
    place: bytes, volume: Callable[[str], Volume]
) -> None:
    """Work of the second run in the new target counts, unlike that of the first in the old."""
    source, made = build_source(place), volume("tmpfs")
    target = made.path
    stop_midway(place, "-T", source, target)
    made.make_anew()

    def again() -> bool:
        (checkpoint,) = checkpoints(place)
        journal = Path(os.fsdecode(checkpoint)) / "journal-0002-0"
        return journal.exists() and journal.read_bytes().count(b"fcpC") > 3

    interrupt(ONE, place, "--ops-limit", "400", "--resume", "-T", source, target, when=again)
    assert len(marks_in(target)) == 1
    copy(TWO, "--resume", "--json", place + b"/r", "-T", source, target)
    assert document(place + b"/r")["resumed"] > 0
    assert differences(source, target, CONTENT) == []
    assert marks_in(target) == []


@pytest.mark.parametrize("option", ["--resume", "--restart"])
@pytest.mark.parametrize("version", [1, VERSION - 1])
def test_a_checkpoint_of_an_older_version(version: int, option: str, place: bytes) -> None:
    """It is not used, and a message reports it.

    Its temporary files are removed. Version 1 had no mark.
    """
    source, target = build_source(place), place + b"/copy"
    write_file(source + b"/large", content("large", 48 * MIB))
    stop_midway(place, "--chunksize", "4M", source, target)
    (path,) = checkpoints(place)
    found = Checkpoint.find(path)
    assert found is not None
    assert found.header is not None
    header = msgspec.to_builtins(found.header, builtin_types=(bytes,))
    header |= {"version": version, "options": {"others": b"then"}}
    if version == 1:
        del header["mark"]
    body = msgspec.msgpack.encode(header)
    found.write(b"header", [b"fcp checkpoint\n", blake2b(body, digest_size=16).digest(), body])
    found.close()
    for name in marks_in(target) if version == 1 else ():
        os.unlink(target + b"/" + name)
    refused = run_fcp(ONE, source, target)
    assert refused.code == 2
    assert "to continue, add --resume" in refused.said
    finished = copy(TWO, option, "--json", place + b"/r", "-T", source, target)
    assert ("another version" in finished.said) is (option == "--resume")
    assert document(place + b"/r")["resumed"] == 0
    assert differences(source, target, CONTENT) == []
    assert sorted(os.listdir(place)) == [b"copy", b"r", b"source"]


@pytest.mark.parametrize("how", ["--resume", "--restart", "damaged", "removed"])
def test_no_mark_is_left(how: str, place: bytes) -> None:
    """The mode and times of a root that is writable only for its owner are unchanged as well.

    Another copy's mark in the source is an ordinary file.
    """
    source, target = build_source(place), place + b"/copy"
    write_file(source + b"/.fcp-mark-0123456789abcdef-0123456789abcdef", b"another's")
    os.chmod(source, 0o555)
    os.utime(source, ns=(10**18, 10**18))
    options = ["-p"]
    stop_midway(place, *options, source, target)
    assert len(marks_in(target)) == 1 + os.path.exists(
        target + b"/.fcp-mark-0123456789abcdef-0123456789abcdef"
    )
    option, (path,) = how, checkpoints(place)
    if not how.startswith("-"):
        option = "--resume"
        (mark,) = [name for name in marks_in(target) if b"-0123456789abcdef-" not in name]
        if how == "removed":
            os.unlink(target + b"/" + mark)
        else:
            os.truncate(path + b"/header", 20)
    prefix = without_rights("dac_override", "dac_read_search")
    finished = run_fcp(TWO, *options, option, "-T", source, target, prefix=prefix)
    assert finished.code == 0, finished.said
    assert differences(source, target, METADATA) == []
    assert sorted(os.listdir(place)) == [b"copy", b"source"]


def test_marks_below_inode_flags_are_removed(place: bytes, volume: Callable[[str], Volume]) -> None:
    """The root is append-only, like its source; and so is the place of the checkpoint inside it."""
    if shutil.which("chattr") is None:
        pytest.skip("chattr is not installed")
    image = volume("ext4").path
    source, parent = build_source(image), make_directory(image, b"parent")
    target = make_directory(parent, b"copy")
    try:
        subprocess.run(["chattr", "+a", source], check=True)
        subprocess.run(["chattr", "+i", parent], check=True)
        finished = copy(TWO, "-a", "-T", source, target)
        assert finished.said == ""
        assert differences(source, target, METADATA) == []
        listed = subprocess.run(["lsattr", "-d", target], check=True, capture_output=True)
        assert b"a" in listed.stdout.split()[0]
    finally:
        subprocess.run(["chattr", "-R", "-i", "-a", image], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_nothing_is_left_in_another_user_s_directory(place: bytes) -> None:
    """A user who may write there may not set its times; a second copy finds no checkpoint."""
    sources = [make_directory(place, name) for name in (b"one", b"two")]
    for source in sources:
        write_file(source + b"/file", b"content")
    target = make_directory(place, b"target")
    os.chown(target, 65534, 65534)
    os.chmod(target, 0o1777)
    prefix = without_rights("fowner", "dac_override", "dac_read_search")
    for _ in range(2):
        finished = run_fcp(TWO, *sources, target, prefix=prefix)
        assert (finished.code, finished.err) == (0, b""), finished.said
        assert sorted(os.listdir(target)) == [b"one", b"two"]
