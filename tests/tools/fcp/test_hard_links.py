"""Names of one inode are names of one inode in the copy, whichever rank copies them.

rsync with -H is the reference. Without the option each name is a separate file.
"""

from __future__ import annotations

import os
import random
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from .judge import differences
from .running import FOUR, ONE, TWO, Launcher, copy, document, launchers, run_fcp
from .trees import MIB, content, make_directory, write_file

every_launcher = pytest.mark.parametrize("launcher", launchers([1, 3], [1, 4]))
LINKS = "--preserve=mode,ownership,timestamps,links"


def groups(root: bytes) -> set[frozenset[bytes]]:
    """Return the sets of paths below `root` that share an inode."""
    found: dict[int, set[bytes]] = {}
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            found.setdefault(os.lstat(path).st_ino, set()).add(os.path.relpath(path, root))
    return {frozenset(paths) for paths in found.values()}


def assert_same_links(source: bytes, target: bytes) -> None:
    assert groups(source) == groups(target)
    if shutil.which("rsync") is None:
        pytest.skip("no rsync here to judge")
    words = [b"rsync", b"-naicH", b"--modify-window=-1", b"--delete", source + b"/", target + b"/"]
    assert subprocess.run(words, check=True, capture_output=True).stdout == b""


def build(root: bytes, seed: int = 1) -> bytes:
    """Build 500 names of 150 inodes in 30 directories, a few large, some symbolic links."""
    rng = random.Random(seed)
    folders = [make_directory(root)]
    folders += [make_directory(rng.choice(folders), b"d%d" % n) for n in range(30)]
    for number in range(150):
        first = os.path.join(rng.choice(folders), b"first-%d" % number)
        if number % 10 == 9:
            os.symlink(b"where ever", first)
        else:
            write_file(first, content(number, rng.choice((0, 10, 5000, 200_000))))
        for further in range(rng.choice((0, 0, 1, 2, 12))):
            name = os.path.join(rng.choice(folders), b"name-%d-%d" % (number, further))
            os.link(first, name, follow_symlinks=False)
    big = write_file(root + b"/big", content("big", 21 * MIB))
    os.link(big, folders[-1] + b"/as big")
    return root


@every_launcher
def test_links_are_links(launcher: Launcher, place: bytes) -> None:
    source = build(place + b"/source")
    finished = copy(launcher, LINKS, "--chunksize", "4M", source, place + b"/copy")
    assert finished.code == 0
    assert_same_links(source, place + b"/copy")


def test_many_seeds_with_several_ranks(place: bytes) -> None:
    """The first rank is random: several runs, with more ranks than cores."""
    for seed in range(5):
        source = build(place + b"/source%d" % seed, seed)
        copy(Launcher(jobs=5), LINKS, source, place + b"/copy%d" % seed)
        assert_same_links(source, place + b"/copy%d" % seed)


def test_without_the_option_each_name_is_a_file(place: bytes) -> None:
    source = build(place + b"/source")
    copy(TWO, "-p", source, place + b"/copy")
    assert all(len(group) == 1 for group in groups(place + b"/copy"))


@pytest.mark.parametrize("launcher", [ONE, FOUR], ids=str)
def test_names_on_the_command_line(launcher: Launcher, place: bytes) -> None:
    """Links between sources, files and directories, become links between their copies."""
    source = build(place + b"/source")
    target = make_directory(place, b"copy")
    os.link(source + b"/big", place + b"/alone")
    copy(launcher, LINKS, place + b"/alone", source + b"/big", source, target)
    inodes = {os.stat(target + name).st_ino for name in (b"/alone", b"/big", b"/source/big")}
    assert len(inodes) == 1
    assert_same_links(source, target + b"/source")


def test_a_second_copy_over_the_first(place: bytes) -> None:
    """The second run finds its own links, and replaces other files by links."""
    source = build(place + b"/source")
    target = place + b"/copy"
    copy(TWO, LINKS, source, target)
    copy(TWO, LINKS, "-T", source, target)
    assert_same_links(source, target)
    for folder, _, names in os.walk(target):
        for name in names:
            path = os.path.join(folder, name)
            os.unlink(path)
            write_file(path, b"in the way")
    copy(FOUR, LINKS, "-T", source, target)
    assert_same_links(source, target)
    left = [name for _, _, names in os.walk(target) for name in names if name.startswith(b".fcp-")]
    assert left == []


@pytest.mark.parametrize("launcher", [ONE, FOUR], ids=str)
def test_a_first_name_that_fails_is_replaced_by_the_next(launcher: Launcher, place: bytes) -> None:
    """Some names are obstructed and fail, but the others are still links."""
    source = make_directory(place, b"source")
    target = make_directory(place, b"copy")
    names = [b"%02d" % number for number in range(20)]
    write_file(source + b"/00", content("file", 100_000))
    for name in names[1:]:
        os.link(source + b"/00", source + b"/" + name)
    for name in names[::2]:
        os.mkfifo(target + b"/" + name)
    finished = run_fcp(launcher, LINKS, "-T", source, target)
    assert finished.code == 1, finished.said
    assert finished.err.count(b"a special file is in the way") == 10
    statuses = [os.lstat(target + b"/" + name) for name in names]
    assert all(stat.S_ISFIFO(status.st_mode) for status in statuses[::2])
    assert len({status.st_ino for status in statuses[1::2]}) == 1
    assert all(status.st_nlink == 10 for status in statuses[1::2])


@pytest.mark.parametrize("launcher", [ONE, FOUR], ids=str)
def test_special_files_of_several_names_copied_twice(launcher: Launcher, place: bytes) -> None:
    """The existing special file is the same, though not under the same names."""
    source = make_directory(place, b"source")
    os.mkfifo(source + b"/one")
    for name in (b"two", b"three"):
        os.link(source + b"/one", source + b"/" + name)
    copy(launcher, "-a", source, place + b"/copy")
    os.unlink(place + b"/copy/two")
    os.mkfifo(place + b"/copy/two")
    for _ in range(2):
        copy(launcher, "-a", "-T", source, place + b"/copy")
        assert_same_links(source, place + b"/copy")
        assert len(os.listdir(place + b"/copy")) == 3


def test_a_name_outside_of_the_copy_is_ignored(place: bytes) -> None:
    source = make_directory(place, b"source")
    write_file(place + b"/outside", b"x")
    os.link(place + b"/outside", source + b"/inside")
    copy(TWO, LINKS, source, place + b"/copy")
    assert os.stat(place + b"/copy/inside").st_nlink == 1


@pytest.mark.parametrize("launcher", [ONE, FOUR], ids=str)
def test_followed_links_are_names_as_well(launcher: Launcher, place: bytes) -> None:
    """With -L an inode has more names than its link count; as in cp -aL all are one file."""
    source = make_directory(place, b"source")
    folders = [make_directory(source, b"%d" % number) for number in range(8)]
    for number in range(20):
        first = write_file(folders[0] + b"/%d" % number, b"content")
        os.link(first, folders[1] + b"/%d" % number)
        for folder in folders[2:]:
            os.symlink(b"../0/%d" % number, folder + b"/%d" % number)
    copy(launcher, "-a", "-L", "-T", source, place + b"/copy")
    for number in range(20):
        paths = [place + b"/copy/%d/%d" % (folder, number) for folder in range(8)]
        assert len({os.stat(path, follow_symlinks=False).st_ino for path in paths}) == 1


def by_cp(*arguments: str | bytes) -> None:
    subprocess.run([b"cp", *map(_bytes, arguments)], check=True)


def _bytes(word: str | bytes) -> bytes:
    return word if isinstance(word, bytes) else word.encode()


@pytest.mark.parametrize("launcher", [ONE, FOUR], ids=str)
def test_a_link_and_its_target_are_one_file(launcher: Launcher, place: bytes) -> None:
    """With -L each link to a file is another name of it, as in ``cp -aL``."""
    source = make_directory(place, b"source")
    for number in range(40):
        folder = make_directory(source, b"d%d" % number)
        write_file(folder + b"/file", b"%d" % number)
        os.symlink(b"../d%d/file" % (number * 7 % 40), folder + b"/link")
        os.symlink(b"file", folder + b"/second")
    big = write_file(source + b"/big", content("big", 9 * MIB))
    os.symlink(b"big", source + b"/to big")
    os.symlink(big, source + b"/d3/to big")
    copy(launcher, "-aL", "--chunksize", "4M", source, place + b"/ours")
    by_cp("-aL", source, place + b"/theirs")
    assert groups(place + b"/ours") == groups(place + b"/theirs")
    assert differences(place + b"/theirs", place + b"/ours") == []


@pytest.mark.parametrize("launcher", [ONE, FOUR], ids=str)
def test_names_that_u_keeps_become_links(launcher: Launcher, place: bytes) -> None:
    """New names and unlinked copies become links to the kept file, as in cp.

    A newer file in the destination stays separate: cp's result for it depends on the order of
    names.
    """
    source = make_directory(place, b"source")
    folders = [make_directory(source, b"%d" % number) for number in range(6)]
    for number in range(20):
        first = write_file(folders[0] + b"/%d" % number, content(number, 5000))
        for folder in folders[1:-1]:
            os.link(first, folder + b"/%d" % number)
    ours, theirs = place + b"/ours", place + b"/theirs"
    by_cp("-a", source, theirs)
    copy(launcher, "-a", source, ours)
    for number in range(20):
        os.link(folders[0] + b"/%d" % number, folders[-1] + b"/%d" % number)
        for target in (ours, theirs):
            name = target + b"/2/%d" % number
            os.unlink(name)
            by_cp("-p", folders[0] + b"/%d" % number, name)
    report = place + b"/report"
    for _ in range(2):
        by_cp("-auT", source, theirs)
        copy(launcher, "-auT", "--json", report, source, ours)
        assert groups(ours) == groups(theirs) == groups(source)
    assert document(report)["skipped"] == 120
    os.unlink(ours + b"/3/7")
    write_file(ours + b"/3/7", b"newer")
    for _ in range(2):
        copy(launcher, "-auT", source, ours)
        with open(ours + b"/3/7", "rb") as file:
            assert file.read() == b"newer"
        alone = frozenset([b"3/7"])
        assert groups(ours) == {group - alone for group in groups(source)} | {alone}


@contextmanager
def overlay(place: bytes, layers: Sequence[bytes]) -> Iterator[bytes]:
    """Mount an overlayfs whose files are on two file systems, with names of several in both."""
    lower = make_directory(layers[0], b"lower")
    for number in range(10):
        first = write_file(make_directory(lower, b"d%d" % number) + b"/f", b"%d" % number)
        os.link(first, lower + b"/%d" % number)
        os.symlink(place + b"/whole/d%d/f" % (number // 2), first + b" link")
        os.link(first + b" link", lower + b"/link %d" % number, follow_symlinks=False)
    upper, work = (make_directory(layers[1], name) for name in (b"upper", b"work"))
    whole = make_directory(place, b"whole")
    layout = b"lowerdir=%b,upperdir=%b,workdir=%b,xino=off" % (lower, upper, work)
    line = [b"mount", b"-t", b"overlay", b"-o", layout, b"overlay", whole]
    mounted = subprocess.run(line, check=False, capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no overlayfs here: {mounted.stderr!r}")
    try:
        for number in range(10):
            write_file(whole + b"/%d new" % number, b"new %d" % number)
            os.link(whole + b"/%d new" % number, whole + b"/%d too" % number)
        yield whole
    finally:
        subprocess.run(["umount", whole], check=True)


@pytest.mark.parametrize("options", [(), ("-L",)], ids=["", "followed"])
def test_names_on_two_layers_of_overlayfs(
    options: tuple[str, ...], place: bytes, mount: Callable[..., bytes]
) -> None:
    """Files belong to the file systems of their layers, and may have equal numbers."""
    ours, theirs, report = (place + name for name in (b"/ours", b"/theirs", b"/report"))
    with overlay(place, [mount("tmpfs"), mount("tmpfs")]) as whole:
        copy(FOUR, "-a", *options, "--json", report, whole, ours)
        by_cp("-a", *options, whole, theirs)
    assert groups(ours) == groups(theirs)
    assert differences(theirs, ours) == []
    assert document(report)["not_kept"] == {}


@pytest.mark.parametrize("option", ["-u", "--skip-same", "-f"])
@pytest.mark.parametrize("kind", ["FIFO", "socket"])
@pytest.mark.parametrize("left", [b"a", b"b"])
def test_a_special_file_with_one_of_two_names(
    left: bytes, kind: str, option: str, place: bytes
) -> None:
    """A killed run leaves it like this: whichever name exists, both are one file again."""
    source = make_directory(place, b"source")
    os.mknod(source + b"/a", {"FIFO": stat.S_IFIFO, "socket": stat.S_IFSOCK}[kind] | 0o600)
    os.link(source + b"/a", source + b"/b")
    copying = "-a", "-T", source, place + b"/copy"
    assert run_fcp(ONE, *copying).code == 0
    os.unlink(place + b"/copy/" + ({b"a", b"b"} - {left}).pop())
    finished = run_fcp(ONE, option, *copying)
    assert finished.code == 0, finished.said
    one, other = (os.lstat(place + b"/copy/" + name) for name in (b"a", b"b"))
    assert stat.S_IFMT(one.st_mode) == stat.S_IFMT(os.lstat(source + b"/a").st_mode)
    assert os.path.samestat(one, other)


def test_two_kept_pipes_are_not_linked(place: bytes) -> None:
    """With -u they may serve two programs, whatever the source has."""
    source, target = make_directory(place, b"source"), make_directory(place, b"copy")
    os.mkfifo(source + b"/a", 0o600)
    os.link(source + b"/a", source + b"/b")
    for name, mode in ((b"a", 0o600), (b"b", 0o640)):
        os.mkfifo(target + b"/" + name)
        os.chmod(target + b"/" + name, mode)
    finished = run_fcp(ONE, "-a", "-u", "-T", source, target)
    assert finished.code == 0, finished.said
    one, other = (os.lstat(target + b"/" + name) for name in (b"a", b"b"))
    assert not os.path.samestat(one, other)
    assert (stat.S_IMODE(one.st_mode), stat.S_IMODE(other.st_mode)) == (0o600, 0o640)
