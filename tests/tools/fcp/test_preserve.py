"""Attributes that -a and --preserve=LIST keep: every type of file, xattrs, ACLs, flags.

A torture tree is compared by rsync (-HAX, times to the nanosecond) and by our own use of getxattr
and SEEK_HOLE. Further cases cover attributes that the destination does not support, required
privileges, inherited access control lists, and flags that forbid renaming.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import struct
import subprocess
from collections.abc import Callable

import pytest

from .judge import hole_differences
from .running import (
    FOUR,
    ONE,
    TWO,
    Launcher,
    copy,
    document,
    launchers,
    run_fcp,
    some_launchers,
    without_rights,
)
from .trees import (
    FOREIGN_GID,
    FOREIGN_UID,
    MIB,
    add_empty,
    add_holes,
    add_links,
    add_modes,
    add_odd_names,
    add_owners,
    add_special_bits,
    add_times,
    content,
    make_directory,
    set_times,
    walk,
    write_file,
)

ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"
CAPABILITY = struct.pack("<IIIII", 0x02000001, 1 << 10, 0, 0, 0)  # net_bind_service, effective
# 1901-12-14, 2200-01-01: the limit of 32 bits and of ext4, and a time beyond it.
EXTREME_TIMES_NS = (-(2**31) * 10**9 + 123_456_789, 7_258_118_400 * 10**9 + 999_999_999)

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may make or mount these")


def acl(*entries: tuple[int, int, int]) -> bytes:
    """Return a list of (tag, rights, number) in the format of the kernel."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def acl_for(user: int, rights: int, group: int = 4) -> bytes:
    """Return a list: all for the owner, `rights` for a user, `group` for the group."""
    nobody = 0xFFFFFFFF
    return acl(
        (0x01, 7, nobody),
        (0x02, rights, user),
        (0x04, group, nobody),
        (0x10, rights | group, nobody),
        (0x20, 0, nobody),
    )


def give(path: bytes, name: str, value: bytes) -> None:
    """Set an attribute of the entry itself; skip the test where that is not supported."""
    try:
        os.setxattr(path, name, value, follow_symlinks=False)
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        pytest.skip(f"the file system of the tests holds no {name}")


def attributes(root: bytes) -> dict[bytes, dict[str, bytes]]:
    """Return all attributes of all entries that have any, by path below `root`."""
    paths = [root]
    for directory, directories, files in os.walk(root):
        paths += [os.path.join(directory, name) for name in (*directories, *files)]
    found = {}
    for path in paths:
        names = os.listxattr(path, follow_symlinks=False)
        values = {name: os.getxattr(path, name, follow_symlinks=False) for name in names}
        if values:
            found[os.path.relpath(path, root)] = values
    return found


def differences(source: bytes, target: bytes) -> list[str]:
    """Return rsync's changes, with attributes and ACLs, and differences found by getxattr."""
    rsync = shutil.which("rsync")
    if rsync is None:
        pytest.skip("rsync, the judge, is not installed")
    finished = subprocess.run(
        [rsync, "-naicHAX", "--modify-window=-1", "--delete", source + b"/", target + b"/"],
        check=False,
        capture_output=True,
        env={**os.environ, "LC_ALL": "C"},
    )
    assert finished.returncode == 0, finished.stderr
    left, right = attributes(source), attributes(target)
    xattr_lines = [f"{path!r}: {left.get(path)} is not {right.get(path)}" for path in left | right]
    return [repr(line) for line in finished.stdout.splitlines()] + [
        line
        for path, line in zip(left | right, xattr_lines, strict=True)
        if left.get(path) != right.get(path)
    ]


def add_specials(root: bytes) -> bytes:
    """Add FIFOs and sockets; devices too if root builds."""
    specials = make_directory(root, b"specials")
    os.mkfifo(os.path.join(specials, b"fifo"), 0o620)
    os.mkfifo(os.path.join(specials, b"f" * 255), 0o600)
    os.mknod(os.path.join(specials, b"socket \xff"), stat.S_IFSOCK | 0o755)
    if os.geteuid() == 0:
        for name, kind, number in (
            (b"null", stat.S_IFCHR, os.makedev(1, 3)),
            (b"big", stat.S_IFCHR, os.makedev(0x123, 0x12345)),
            (b"disk", stat.S_IFBLK, os.makedev(7, 200)),
        ):
            path = os.path.join(specials, name)
            os.mknod(path, kind | 0o640, number)
            os.chown(path, FOREIGN_UID, FOREIGN_GID)
            os.chmod(path, 0o4642)
    return specials


def add_attributes(root: bytes) -> bytes:
    """Add attributes in every namespace, on every type of entry that can have them."""
    inner = make_directory(root, b"attributes", b"directory")
    above = os.path.dirname(inner)
    small = write_file(os.path.join(above, b"small"), b"x")
    for path in (
        small,
        write_file(os.path.join(above, b"read only"), b"y"),
        write_file(os.path.join(above, b"large"), content("attributes", 9 * MIB)),
        inner,
    ):
        give(path, "user.text", b"some text")
        give(path, "user.empty", b"")
        give(path, "user.long name " + "n" * 200, bytes(range(256)) * 4)
    os.chmod(os.path.join(above, b"read only"), 0o444)
    os.symlink(b"small", os.path.join(above, b"link"))
    os.mkfifo(os.path.join(above, b"fifo"))
    if os.geteuid() == 0:
        for name in (b"small", b"large", b"directory", b"link", b"fifo"):
            give(os.path.join(above, name), "trusted.overlay", b"\0\1\2")
        for name in (b"small", b"large"):
            path = os.path.join(above, name)
            os.chown(path, FOREIGN_UID, FOREIGN_GID)
            os.chmod(path, 0o4755)
            give(path, "security.capability", CAPABILITY)
    return above


def add_acls(root: bytes) -> bytes:
    """Add ACLs, and default ones whose children do and do not have ACLs."""
    lists = make_directory(root, b"lists")
    file = write_file(os.path.join(lists, b"file"), b"z")
    give(file, ACCESS, acl_for(1001, 7))
    give(write_file(os.path.join(lists, b"large"), content("acl", 5 * MIB)), ACCESS, acl_for(7, 5))
    fifo = os.path.join(lists, b"fifo")
    os.mkfifo(fifo)
    give(fifo, ACCESS, acl_for(1002, 6))
    bare = make_directory(lists, b"default later")
    write_file(os.path.join(bare, b"without"), b"1")
    make_directory(bare, b"directory without")
    os.mkfifo(os.path.join(bare, b"fifo without"))
    write_file(os.path.join(bare, b"large without"), content("bare", 5 * MIB))
    give(bare, DEFAULT, acl_for(1003, 7))
    inherits = make_directory(lists, b"default first")
    give(inherits, DEFAULT, acl_for(1004, 5))
    write_file(os.path.join(inherits, b"with"), b"2")
    write_file(os.path.join(make_directory(inherits, b"directory with"), b"below"), b"3")
    return lists


def add_hard_links(root: bytes) -> None:
    """Add second names, in other directories, of entries that have attributes or are special."""
    names = make_directory(root, b"names", b"inner")
    for other in (b"attributes", b"lists", b"specials"):
        for name in sorted(os.listdir(os.path.join(root, other))):
            path = os.path.join(root, other, name)
            if not os.path.isdir(path) and len(name) < 200:
                os.link(path, os.path.join(names, other + b" " + name), follow_symlinks=False)


@pytest.fixture(scope="session")
def torture(shared_place: bytes) -> bytes:
    """Build the tree of everything that -a preserves; read only."""
    root = make_directory(shared_place, b"torture")
    for add in (
        add_odd_names,
        add_empty,
        add_links,
        add_modes,
        add_special_bits,
        add_holes,
        add_owners,
        add_times,
        add_specials,
        add_attributes,
        add_acls,
    ):
        add(root)
    add_hard_links(root)
    if os.geteuid() == 0:
        write_file(os.path.join(make_directory(root, b"closed"), b"file"), b"4", 0)
        os.chmod(os.path.join(root, b"closed"), 0)
    set_times(root)
    for number, time_ns in enumerate(EXTREME_TIMES_NS):
        for kind in (b"file", b"link", b"directory"):
            path = os.path.join(root, b"times", b"%s %d" % (kind, number))
            os.utime(path, ns=(time_ns, time_ns), follow_symlinks=False)
    return root


@pytest.mark.parametrize("launcher", launchers([1, 3], [4]))
def test_everything_is_preserved(launcher: Launcher, torture: bytes, place: bytes) -> None:
    target = place + b"/copy"
    copy(launcher, "-a", "--chunksize", "4M", "--json", place + b"/result", torture, target)
    assert differences(torture, target) == []
    assert hole_differences(torture + b"/holes", target + b"/holes") == []
    result = document(place + b"/result")
    assert result["not_kept"] == {}
    kinds = [stat.S_IFMT(visit.status.st_mode) for visit in walk(torture)]
    assert result["files"] == kinds.count(stat.S_IFREG)
    assert result["links"] == kinds.count(stat.S_IFLNK)
    assert result["directories"] == kinds.count(stat.S_IFDIR) + 1
    assert result["entries"] == result["found"] == len(kinds) + 1
    assert result["special"] > 5
    for name in os.listdir(torture + b"/specials"):
        left, right = (os.lstat(os.path.join(r, b"specials", name)) for r in (torture, target))
        assert (left.st_mode, left.st_rdev) == (right.st_mode, right.st_rdev)
    for name in os.listdir(torture + b"/times"):
        left, right = (os.lstat(os.path.join(r, b"times", name)) for r in (torture, target))
        assert left.st_mtime_ns == right.st_mtime_ns


@some_launchers
def test_a_second_copy_replaces_attributes(launcher: Launcher, place: bytes) -> None:
    """Existing entries get other attributes, lists and types; flags and names stay."""
    source, target = make_directory(place, b"source"), make_directory(place, b"target")
    add_attributes(source)
    add_acls(source)
    os.mkfifo(source + b"/a fifo now")
    old = write_file(target + b"/a fifo now", b"was a file")
    give(old, "user.old", b"1")
    make_directory(target, b"attributes", b"directory")
    small = write_file(target + b"/attributes/small", b"longer than before", 0o666)
    give(small, "user.old", b"1")
    give(small, ACCESS, acl_for(9, 7))
    bare = make_directory(target, b"lists", b"default later", b"directory without")
    give(bare, ACCESS, acl_for(9, 7))
    give(os.path.dirname(bare), DEFAULT, acl_for(8, 7))
    give(target, DEFAULT, acl_for(10, 7))
    os.chmod(target, 0o2777)
    os.remove(source + b"/lists/fifo")
    copy(launcher, "-a", "-T", "--chunksize", "4M", source, target)
    assert differences(source, target) == []


@some_launchers
def test_roots_that_are_special(launcher: Launcher, place: bytes) -> None:
    source = add_specials(place)
    target = make_directory(place, b"target")
    give(target, DEFAULT, acl_for(10, 7))  # no entry may inherit it
    names = sorted(os.listdir(source))
    finished = copy(launcher, "-a", *(os.path.join(source, name) for name in names), target)
    assert f"{len(names)} special files" in finished.out.decode()
    os.removexattr(target, DEFAULT)
    shutil.copystat(source, target)
    assert differences(source, target) == []


def test_without_a_special_files_are_not_copied(place: bytes) -> None:
    os.mkfifo(place + b"/fifo")
    finished = run_fcp(ONE, "--preserve=all", place + b"/fifo", place + b"/copy")
    assert finished.code == 1
    assert "fifo" in finished.said
    assert not os.path.lexists(place + b"/copy")


def test_without_a_attributes_are_not_copied(place: bytes) -> None:
    """This includes directories, whether they are walked or copied in batches."""
    source = place + b"/source"
    for number in range(12):
        directory = source + b"/%d" % number
        os.makedirs(directory)
        write_file(directory + b"/file", b"content")
        if number % 3 == 0:
            os.mkdir(directory + b"/inner")
        for path in (directory, directory + b"/file"):
            os.setxattr(path, b"user.name", b"value")
    copy(ONE, "-p", "-T", source, place + b"/target")
    for top, _, names in os.walk(place + b"/target"):
        for path in (top, *(os.path.join(top, name) for name in names)):
            assert os.listxattr(path) == []


def test_special_files_replace_files_and_links_alone(place: bytes) -> None:
    source, target = make_directory(place, b"source"), make_directory(place, b"target")
    for name in (b"file", b"link", b"directory", b"fifo"):
        os.mknod(os.path.join(source, name), stat.S_IFSOCK | 0o600)
    write_file(target + b"/file", b"old")
    os.symlink(b"file", target + b"/link")
    os.mkdir(target + b"/directory")
    os.mkfifo(target + b"/fifo")
    finished = run_fcp(TWO, "-a", "-T", source, target)
    assert finished.code == 1
    assert finished.said.count("in the way") == 2
    kinds = {
        name: stat.S_IFMT(os.lstat(target + b"/" + name).st_mode) for name in (b"file", b"link")
    }
    assert set(kinds.values()) == {stat.S_IFSOCK}
    assert stat.S_ISFIFO(os.lstat(target + b"/fifo").st_mode)
    assert sorted(os.listdir(target)) == [b"directory", b"fifo", b"file", b"link"]


def test_dry_run_counts_special_files(place: bytes) -> None:
    source = add_specials(place)
    result = place + b"/result"
    copy(TWO, "-a", "--dry-run", "--json", result, source, place + b"/copy")
    assert document(result)["special"] == len(os.listdir(source))
    assert not os.path.lexists(place + b"/copy")


# ---- what takes privilege ------------------------------------------------------------------------


@as_root
def test_devices_that_cannot_be_created_are_named(place: bytes) -> None:
    source = add_specials(place)
    finished = run_fcp(TWO, "-a", source, place + b"/copy", prefix=without_rights("mknod"))
    assert finished.code == 1
    for name in ("null", "big", "disk"):
        assert f"/{name}': Operation not permitted" in finished.said
    assert len(os.listdir(place + b"/copy")) == len(os.listdir(source)) - 3


@as_root
@pytest.mark.parametrize("launcher", launchers([1, 4], [2]))
def test_attributes_without_permission_are_reported_once(launcher: Launcher, place: bytes) -> None:
    source = make_directory(place, b"source")
    for number in range(5):
        path = write_file(os.path.join(source, b"%d" % number), b"x")
        give(path, "user.kept", b"1")
        give(path, "security.capability", CAPABILITY)
    prefix = without_rights("setfcap")
    target = place + b"/copy"
    finished = run_fcp(launcher, "-a", source, target, prefix=prefix)
    assert finished.code == 0, finished.said
    assert finished.said.count("extended attributes of 5 entries") == 1
    assert all(names == {"user.kept": b"1"} for names in attributes(target).values())
    assert len(attributes(target)) == 5
    finished = run_fcp(launcher, "-a", "--preserve=xattr", source, place + b"/new", prefix=prefix)
    assert finished.code == 1
    assert finished.said.count("cannot set the attributes of") == 5
    assert finished.said.count("extended attributes of 5 entries") == 1
    assert os.listdir(place + b"/new") == []


def test_a_file_without_write_permission_gets_its_attributes(place: bytes) -> None:
    """The namespace `user` requires that permission, and no mode is preserved here."""
    source = make_directory(place, b"source")
    give(write_file(source + b"/file", b"x"), "user.a", b"1")
    give(make_directory(source, b"directory"), "user.b", b"2")
    give(write_file(source + b"/large", content(1, 5 * MIB)), "user.c", b"3")
    for name in (b"file", b"directory", b"large"):
        os.chmod(os.path.join(source, name), 0o555)
    prefix = without_rights("dac_override", "dac_read_search", "fowner")
    options = ("--preserve=xattr", "--chunksize", "4M")
    finished = run_fcp(TWO, *options, source, place + b"/copy", prefix=prefix)
    assert finished.code == 0, finished.said
    assert attributes(source) == attributes(place + b"/copy")
    modes = {stat.S_IMODE(os.stat(place + b"/copy/" + n).st_mode) for n in os.listdir(source)}
    assert modes == {0o555}


# ---- what the destination can't hold -------------------------------------------------------------


@as_root
@pytest.mark.parametrize("launcher", launchers([1, 4], [4]))
def test_unsupported_attributes_are_reported_once_by_type(
    launcher: Launcher, place: bytes, mount: Callable[..., bytes]
) -> None:
    """ramfs supports neither attributes nor access control lists."""
    source = make_directory(place, b"source")
    above, lists = add_attributes(source), add_acls(source)
    values = attributes(source).values()
    held = {
        "extended attributes": sum(
            any(name not in (ACCESS, DEFAULT) for name in v) for v in values
        ),
        "access control lists": sum(ACCESS in v or DEFAULT in v for v in values),
    }
    target = mount("ramfs")
    result = place + b"/result"
    options = ("-a", "--chunksize", "4M", "--json", result)
    finished = run_fcp(launcher, *options, source, target)
    assert finished.code == 0, finished.said
    assert document(result)["not_kept"] == held
    messages = [line for line in finished.said.splitlines() if "not kept" in line]
    assert len(messages) == 2
    for (kind, count), line in zip(held.items(), messages, strict=True):
        assert f"{kind} of {count} entries" in line
    assert attributes(target) == {}
    assert sorted(os.listdir(target + b"/source/attributes")) == sorted(os.listdir(above))
    # The group of a file with a lost list has the access of the list, not of the mask.
    assert stat.S_IMODE(os.stat(lists + b"/file").st_mode) == 0o770
    assert stat.S_IMODE(os.stat(target + b"/source/lists/file").st_mode) == 0o740


@as_root
@pytest.mark.parametrize("kind", ["xattr", "acl"])
def test_attributes_requested_by_name_are_required(
    kind: str, place: bytes, mount: Callable[..., bytes]
) -> None:
    source = make_directory(place, b"source")
    give(write_file(source + b"/with list", b"1"), ACCESS, acl_for(1001, 7))
    give(write_file(source + b"/with attribute", b"2"), "user.a", b"1")
    give(write_file(source + b"/large", content(3, 5 * MIB)), "user.a", b"1")
    give(source + b"/large", ACCESS, acl_for(1001, 7))
    write_file(source + b"/with none", b"3")
    os.symlink(b"x", source + b"/link")
    os.mkfifo(source + b"/fifo")
    give(source + b"/link", "trusted.a", b"1")
    give(source + b"/fifo", ACCESS, acl_for(1001, 7))
    target = mount("ramfs")
    options = ("-a", f"--preserve={kind}", "--chunksize", "4M", "--json", place + b"/result")
    finished = run_fcp(FOUR, *options, "-T", source, target)
    assert finished.code == 1
    result = document(place + b"/result")
    xattr, lists = {b"with attribute", b"link"}, {b"with list", b"fifo"}
    copied = {b"with none"} | (lists if kind == "xattr" else xattr)
    assert set(os.listdir(target)) == copied
    assert result["failed"] == 3
    assert result["not_kept"] == {"extended attributes": 3, "access control lists": 3}
    # Attributes that were not requested are not reported; lists belong to the mode, which does not
    # require them.
    os.remove(source + b"/fifo")
    finished = run_fcp(ONE, "--preserve=ownership,timestamps", "-T", source, target)
    assert (finished.code, finished.said) == (0, "")
    finished = run_fcp(ONE, "--preserve=mode", "-T", source, target)
    assert finished.code == 0
    assert "access control lists of 2 entries" in finished.said


# ---- inode flags ---------------------------------------------------------------------------------


def flags(path: bytes) -> str:
    """Return the flags of an entry that a user can set, in the letters of lsattr."""
    finished = subprocess.run(["lsattr", "-d", path], check=True, capture_output=True)
    return "".join(sorted(set(finished.stdout.split()[0].decode()) & set("sSiadA")))


@as_root
@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_inode_flags_are_preserved(kind: str, place: bytes, mount: Callable[..., bytes]) -> None:
    """Small, large and replaced files and directories keep them, even those against renames."""
    if shutil.which("chattr") is None:
        pytest.skip("chattr is not installed")
    image = mount(kind, 320 * MIB)
    source, target = make_directory(image, b"source"), make_directory(image, b"target")
    wanted = {}
    for number, letters in enumerate(("d", "i", "a", "AdS", "di")):
        for name, size in ((b"small", 10), (b"sparse", 0), (b"large", 5 * MIB), (b"replaced", 11)):
            path = write_file(source + b"/%s %d" % (name, number), content(number, size))
            if name == b"sparse":
                os.truncate(path, 100_000)
            if name == b"replaced":
                write_file(target + b"/%s %d" % (name, number), b"old")
            wanted[path] = letters
            for other in range(8):
                os.link(path, make_directory(path + b" %d" % other) + b"/name")
        inner = make_directory(source, b"directory %d" % number)
        write_file(inner + b"/file", b"x")
        wanted[inner] = letters
    try:
        for path, letters in wanted.items():
            subprocess.run(["chattr", f"+{letters}", path], check=True)
        copy(FOUR, "-a", "-T", "--chunksize", "4M", source, target)
        # Entries created in a directory with flags may inherit some: compare them before.
        for path, letters in wanted.items():
            assert flags(path) == "".join(sorted(letters))
            assert flags(path.replace(b"/source/", b"/target/")) == flags(path)
        assert differences(source, target) == []
    finally:
        subprocess.run(["chattr", "-R", "-i", "-a", image], check=True)


@as_root
def test_unsupported_inode_flags_are_reported(place: bytes, mount: Callable[..., bytes]) -> None:
    source, target = mount("ext4", 40 * MIB), mount("ramfs")
    os.rmdir(source + b"/lost+found")
    write_file(source + b"/file", b"x")
    subprocess.run(["chattr", "+d", source + b"/file"], check=True)
    result = place + b"/result"
    finished = copy(TWO, "-a", "--json", result, "-T", source, target)
    assert "inode flags of 1 entry" in finished.said
    assert document(result)["not_kept"] == {"inode flags": 1}


@as_root
def test_flags_without_permission_to_set_them(place: bytes, mount: Callable[..., bytes]) -> None:
    """The other flags of the same file are set."""
    image = mount("ext4", 40 * MIB)
    source = make_directory(image, b"source")
    write_file(source + b"/file", b"x")
    subprocess.run(["chattr", "+id", source + b"/file"], check=True)
    prefix = without_rights("linux_immutable")
    try:
        finished = run_fcp(ONE, "-a", source, image + b"/copy", prefix=prefix)
        assert finished.code == 0, finished.said
        assert "inode flags of 1 entry" in finished.said
        assert flags(image + b"/copy/file") == "d"
    finally:
        subprocess.run(["chattr", "-i", source + b"/file"], check=True)


# ---- the command line ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("mode,acls", "unknown attribute 'acls'; choose from mode, ownership"),
        ("", "unknown attribute ''; choose from"),
    ],
)
def test_unknown_words_are_refused(words: str, said: str, place: bytes) -> None:
    write_file(place + b"/file", b"x")
    finished = run_fcp(ONE, f"--preserve={words}", place + b"/file", place + b"/copy")
    assert finished.code == 2
    assert said in finished.said
    assert not os.path.lexists(place + b"/copy")


def test_archive_may_not_be_spelled_as_a_list(place: bytes) -> None:
    finished = run_fcp(ONE, "--preserve=all,special", place, place + b"/copy")
    assert finished.code == 2


@pytest.mark.parametrize("option", ["--preserve=all", "-n"])
def test_existing_special_files(option: str, place: bytes) -> None:
    """A second run finds the same FIFO; a FIFO replaces a file."""
    source, target = make_directory(place, b"source"), make_directory(place, b"copy")
    os.mkfifo(source + b"/pipe", 0o640)
    os.mkfifo(source + b"/other")
    write_file(target + b"/other", b"a file")
    os.mkfifo(target + b"/pipe", 0o600)
    before = os.lstat(target + b"/pipe")
    copy(ONE, "-a", option, "-T", source, target)
    after = os.lstat(target + b"/pipe")
    assert after.st_ino == before.st_ino
    assert stat.S_IMODE(after.st_mode) == (0o600 if option == "-n" else 0o640)
    assert stat.S_ISFIFO(os.lstat(target + b"/other").st_mode) == (option != "-n")
