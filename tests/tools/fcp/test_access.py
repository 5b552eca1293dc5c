"""Access to a copy by ACLs and the mode equals that of cp's copy, and is never broader.

The reference is cp over random lists, on both sides, on several file systems; where a destination
has no ACLs it is acl(5): a user may not do with a copy what the user might not do with its source.
This holds at every moment: the states between the calls of a run are checked one by one.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from ...fusefs.rules import Rule
from .access import (
    ACCESS,
    DEFAULT,
    GROUPS,
    MASK,
    OTHER,
    USERS,
    Access,
    drawn_seed,
    exceeds,
    falls_short,
    give,
    keeps_groups_above_others,
    random_list,
    tree,
)
from .interrupts import interrupt
from .running import ONE, TWO, clean_environment, command, copy, document, run_fcp
from .trees import MIB, content, make_directory, write_file

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount and give files away")
CHUNKS = ("--chunksize", "4M")
# The options of cp and of fcp, and the umask of both.
WAYS = (
    ("-rp", ("-p",), 0o022),
    ("-a", ("-a",), 0o077),
    ("-rp", ("-p", "--inplace"), 0o027),
    ("-r", (), 0o022),
    ("-r", (), 0),
    ("-r", ("--inplace",), 0o027),
    ("-r", ("-u",), 0o077),
)


def the_cp() -> str:
    """The reference."""
    cp = shutil.which("cp")
    version = b"" if cp is None else subprocess.run([cp, "--version"], capture_output=True).stdout
    if cp is None or b"coreutils" not in version:
        pytest.skip("the judge, cp of GNU coreutils, is not installed")
    return cp


def build(root: bytes, rng: random.Random, kinds: str) -> None:
    """Build a tree with random modes, owners and lists; `kinds` determines the sizes of files."""
    directories = [root]
    for number in range(6):
        parent = rng.choice(directories)
        directories.append(make_directory(parent, b"directory %d" % number))
    entries = list(directories)
    for number in range(30):
        kind = rng.choice(kinds)
        path = b"pipe %d" if kind == "f" else b"file %d"
        path = os.path.join(rng.choice(directories), path % number)
        if kind == "f":
            os.mkfifo(path)
        else:
            size = rng.randrange(5000) if kind == "s" else 5 * MIB
            write_file(path, content(number, size) if kind == "s" else b"")
            os.truncate(path, size)
        entries.append(path)
    for path in entries:
        give_rights(path, rng)
    for path in directories:
        if rng.random() < 0.5:
            give(path, DEFAULT, random_list(rng))


def give_rights(path: bytes, rng: random.Random) -> None:
    """Set a random mode, often another owner, and often an access list."""
    os.chmod(path, rng.randrange(0o1000) | (0 if os.geteuid() == 0 else 0o700))
    if os.geteuid() == 0 and rng.random() < 0.5:
        os.chown(path, rng.choice(USERS), rng.choice(GROUPS))
    if rng.random() < 0.6:
        give(path, ACCESS, random_list(rng))


def occupy(source: bytes, target: bytes, rng: random.Random) -> None:
    """Create entries of the target under the names of half of the source's entries."""
    os.mkdir(target)
    entries = [target]
    for above, directories, files in os.walk(source):
        directories.sort()
        here = os.path.join(target, os.path.relpath(above, source))
        if not os.path.isdir(here):
            continue
        for name in directories:
            if rng.random() < 0.5:
                entries.append(make_directory(here, name))
        for name in sorted(files):
            path = os.path.join(here, name)
            if rng.random() < 0.4 and os.path.isfile(os.path.join(above, name)):
                entries.append(write_file(path, b"old"))
                os.utime(path, (0, 0))
    for path in entries:
        give_rights(path, rng)
        if os.path.isdir(path) and rng.random() < 0.6:
            give(path, DEFAULT, random_list(rng))


def misses(name: bytes, ours: Access, cp: Access, source: Access, *, keeps: bool) -> str | None:
    """Return how a copy differs from the expected one, by cp's copy of the same entry."""
    if keeps:
        if ours != source:
            return f"{name!r}: {ours} is not the source's {source}"
        # Since 9.2 cp leaves inherited ACLs on a copy if its source has none.
        known = cp == source or not source.access or not source.default
        return None if known else f"{name!r}: cp makes {cp} of {source}, and fcp does not"
    if ours == cp:
        return None
    # In a new directory cp grants group and others write access beyond the default ACL.
    more = cp.mode & ~ours.mode & source.mode & 0o022
    less = {MASK: ~more >> 3, OTHER: ~more}
    narrowed = cp._replace(
        mode=cp.mode & ~more,
        access=tuple((tag, right & less.get(tag, 7), who) for tag, right, who in cp.access),
    )
    if ours == narrowed and ours.default:
        return None
    return f"{name!r}: {ours} is not cp's {cp}"


@pytest.mark.parametrize("kind", ["", "ext4", "xfs"])
def test_access_is_that_of_cp(kind: str, place: bytes, mount: Callable[..., bytes]) -> None:
    """The trees and targets are random; -a also copies hard links."""
    cp = the_cp()
    home = mount(kind, 320 * MIB) if kind else place
    seed = drawn_seed()
    wrong = []
    for number, (asked, options, umask) in enumerate(WAYS[::2] if kind else WAYS):
        archive, keeps = asked == "-a", asked != "-r"
        rng = random.Random(f"{seed} {number}")
        source = make_directory(home, b"source %d" % number)
        build(source, rng, "ssslf" if archive else "sssl")
        if archive:
            for name in os.listdir(source):
                if name.startswith(b"file"):
                    os.link(os.path.join(source, name), os.path.join(source, b"second " + name))
        sides = [home + b"/%s %d" % (side, number) for side in (b"cp", b"fcp")]
        for side in sides:
            occupy(source, side, random.Random(f"{seed} {number} target"))
        judge: list[str | bytes] = [cp, asked, "-T", source, sides[0]]
        judged = subprocess.run(judge, capture_output=True, umask=umask)
        assert judged.returncode == 0, judged.stderr
        copy(TWO, *options, *CHUNKS, "-T", source, sides[1], umask=umask)
        theirs, ours, all_of = tree(sides[0]), tree(sides[1]), tree(source)
        assert theirs.keys() == ours.keys() == all_of.keys()
        found = [misses(n, ours[n], theirs[n], all_of[n], keeps=keeps) for n in sorted(ours)]
        wrong += [f"{asked} {options}: {miss}" for miss in found if miss is not None]
    assert wrong == [], "\n".join([f"seed {seed}", *wrong])


LATER = (("-a", "--verify"), ("-p", "--resume"), ("-p", "--retry-from"))


@as_root
@pytest.mark.parametrize("options", LATER, ids=lambda options: options[1][2:])
def test_access_is_preserved_in_later_runs_too(options: tuple[str, str], place: bytes) -> None:
    """Entries copied in a second run, or verified, have the same access as those copied at once."""
    rng = random.Random(seed := drawn_seed())
    source, target = make_directory(place, b"source"), place + b"/target"
    build(source, rng, "sl")
    occupy(source, target, rng)
    names = (*CHUNKS, "-T", source, target)
    if options[1] == "--resume":
        for number in range(1000):
            write_file(source + b"/%d" % number, b"x", 0o666)
            give(source + b"/%d" % number, ACCESS, random_list(rng))
        interrupt(TWO, place, options[0], *names)
        copy(TWO, *options, *names)
    elif options[1] == "--retry-from":
        taken = [n for n in tree(source) if n.startswith(b"file")]
        for name in taken:
            with contextlib.suppress(FileNotFoundError):
                os.remove(os.path.join(target, name))
            make_directory(target, name)
        log = place + b"/log"
        assert run_fcp(TWO, "-p", "--error-log", log, *names).code == (1 if taken else 0)
        for name in taken:
            os.rmdir(os.path.join(target, name))
        copy(TWO, *options, log, *names) if taken else None
    else:
        copy(TWO, *options, *names)
    assert tree(target) == tree(source), f"seed {seed}"


@as_root
@pytest.mark.parametrize(
    "options",
    [
        ("fcp", "-a"),
        ("fcp", "-p", "--inplace"),
        ("fcp",),
        ("fcp", "--inplace"),
        ("fmirror", "-q"),
    ],
    ids=" ".join,
)
def test_no_moment_grants_more(options: tuple[str, ...], place: bytes) -> None:
    """Except for the owner, access is limited by the final one; old content may have more.

    Nor does a moment grant less than both the start and the end.
    """
    rng = random.Random(seed := drawn_seed())
    source, target = make_directory(place, b"source"), place + b"/target"
    build(source, rng, "ssslf" if {"-a", "fmirror"} & set(options) else "sssl")
    occupy(source, target, rng)
    old_bytes = 6000  # no source is that large
    for above, _, files in os.walk(target):
        for name in files:
            path = os.path.join(above, name)
            os.truncate(path, old_bytes)
            if rng.random() < 0.3 and options[0] == "fmirror":  # only its attributes differ
                original = os.path.join(source, os.path.relpath(path, target))
                shutil.copyfile(original, path)
                times = os.stat(original)
                os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    before = {os.lstat(os.path.join(target, n)).st_ino: e for n, e in tree(target).items()}
    report = place + b"/report"
    tool, *tool_options = options
    program = ("tests.tools.fcp.watched", tool, os.fsdecode(target), os.fsdecode(report))
    sides = [source, target] if tool == "fmirror" else [*CHUNKS, "-T", source, target]
    line = command(ONE, [*tool_options, *sides], program)
    finished = subprocess.run(line, env=clean_environment(), capture_output=True, umask=0o022)
    assert finished.returncode == 0, finished.stderr
    at_end = {os.lstat(os.path.join(target, n)).st_ino: entry for n, entry in tree(target).items()}
    with open(report) as stream:
        states = [(inode, size, as_access(state)) for inode, size, state in json.load(stream)]
    seen = [state for state in states if state[0] in at_end]
    assert len(seen) > len(at_end)
    wrong = [
        f"{state}, in the end {at_end[inode]}: {more}"
        for inode, size, state in seen
        # A directory may grant its former access until it has its final state.
        if size != old_bytes and not (inode in before and not exceeds(state, before[inode]))
        for more in exceeds(state, at_end[inode])
    ]
    wrong += [
        f"{before[inode]}, then {state}, in the end {at_end[inode]}: {less}"
        for inode, _, state in seen
        if inode in before and keeps_groups_above_others(at_end[inode])
        for less in falls_short(state, before[inode], at_end[inode])
    ]
    assert wrong == [], f"seed {seed}"


def as_access(state: list[Any]) -> Access:
    """Return the access rights from their JSON form."""
    owner, group, mode, *lists = state
    return Access(owner, group, mode, *(tuple(tuple(entry) for entry in acl) for acl in lists))


@as_root
@pytest.mark.parametrize("kind", ["ramfs", "fuse"])
def test_file_systems_without_acls(
    kind: str, place: bytes, mount: Callable[..., bytes], request: pytest.FixtureRequest
) -> None:
    """Access does not increase, and a message reports it; explicit requests fail."""
    rng = random.Random(seed := drawn_seed())
    source = make_directory(place, b"source")
    build(source, rng, "sslf")
    if kind == "fuse":
        # A server that reports this with its own error.
        mounted = request.getfixturevalue("fuse")()
        ops = ("setxattr", "getxattr", "listxattr", "removexattr")
        mounted.rules(Rule(ops, errno="EOPNOTSUPP"))
        home = mounted.path
    else:
        home = mount(kind)
    entries = tree(source)
    listed = sum(bool(entry.access or entry.default) for entry in entries.values())
    for option in ("-p", "-a"):
        options = (option, "--exclude", "pipe *") if option == "-p" else (option,)
        target = home + b"/copy" + option.encode()
        finished = copy(TWO, *options, *CHUNKS, "--json", place + b"/result", source, target)
        assert "access control lists of" in finished.said
        if option == "-a":
            assert document(place + b"/result")["not_kept"] == {"access control lists": listed}
        for name, made in tree(target).items():
            assert exceeds(made, entries[name]) == [], f"seed {seed}: {name!r}"
            assert made.mode & 0o700 == entries[name].mode & 0o700
            if not entries[name].access:
                assert made.mode == entries[name].mode
    finished = run_fcp(TWO, "-a", "--preserve=acl", *CHUNKS, source, home + b"/demanded")
    assert finished.code == 1
    assert finished.said.count("destination does not support its access control lists") == listed
