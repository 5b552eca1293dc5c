"""Random mirrors, each compared with rsync's result on a copy of the same target.

python -m tests.tools.fmirror.judge --seeds 0..2000

Each seed determines the trees, the options, the launcher and the user. A run that takes longer than
a minute counts as hanging, and is a failure. Root executes a third of them as an ordinary user, if
this user can run the same Python.
"""

from __future__ import annotations

import argparse
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.tools.fcp.running import ONE, TWO, Launcher, Run

from .running import FMIRROR, differences

LIMIT_S = 60.0
ORDINARY = 65534
"""The numbers of a user and of a group without privileges."""
LAUNCHERS = ONE, TWO, Launcher(ranks=3)
_KEEP = "keep"  # so no directory is empty; rsync replaces empty ones even without --delete
_TIMES = [10**9 + 1000 * number for number in range(4)]
_NAMES = "abcdefgh"
_SOME_FAILED = 23, 24, 25
"""Exit codes of rsync: some entries failed, have vanished, or were too many to delete."""
_RSYNC_S = "20"
_SETUID_TO = ["setpriv", f"--reuid={ORDINARY}", f"--regid={ORDINARY}", "--clear-groups"]


class Case(NamedTuple):
    """The values that a seed determines, except for the trees."""

    seed: int
    options: tuple[str, ...]
    more: tuple[str, ...]
    launcher: Launcher
    ordinary: bool

    def __str__(self) -> str:
        who = " as an ordinary user" if self.ordinary else ""
        words = " ".join((*self.more, *self.options))
        return f"seed {self.seed}: fmirror {words} ({self.launcher}{who})"


def has_ordinary() -> bool:
    """Return whether an ordinary user can run this Python, and this process can become one."""
    if os.geteuid() or shutil.which("setpriv") is None:
        return False
    # Through a shell: setpriv itself may still reach a directory that the user cannot enter.
    probe = [*_SETUID_TO, "sh", "-c", '"$0" -c "import pcircle.tools.fmirror.cli"', sys.executable]
    return not subprocess.run(probe, check=False, capture_output=True).returncode


def case_of(seed: int, launchers: Sequence[Launcher], *, ordinary: bool) -> Case:
    """Draw the values of a seed for these launchers; some use an ordinary user, if possible."""
    random = Random(seed)
    options = [
        random.choice(["", "", "-u", "--ignore-existing", "--existing"]),
        random.choice(["", "--delete"]),
        random.choice(["", "", "-c"]),
    ]
    more = [random.choice(["", "--verify"]), random.choice(["", "", "--threads=3"])]
    launcher = random.choice(launchers)
    ordinary = random.random() < 1 / 3 and ordinary
    given, more_words = (tuple(filter(None, words)) for words in (options, more))
    return Case(seed, given, more_words, launcher, ordinary)


class Trees:
    """A random source and target, with random edits."""

    def __init__(self, place: Path, random: Random, *, devices: bool) -> None:
        self.source, self.target = place / "a", place / "b"
        self._random = random
        self._kinds = ["file"] * 5 + ["link", "fifo", "hard", "hard", "directory", "directory"]
        self._kinds += ["device"] * devices
        self._devices = devices
        self.source.mkdir()
        (self.source / _KEEP).write_text("kept")
        for _ in range(random.randrange(4, 25)):
            self._make(self._new(self.source))
        if random.random() < 0.85:
            subprocess.run(["cp", "-a", self.source, self.target], check=True)
            for _ in range(random.randrange(1, 14)):
                self._edit(random.choice([self.source, self.target]))

    def _all(self, top: Path) -> list[Path]:
        """Return all entries except permanent ones, in order."""
        return sorted(path for path in top.rglob("*") if path.name != _KEEP)

    def _new(self, top: Path) -> Path:
        """Return a path that is not in use, or may be."""
        places = [top, *(path for path in self._all(top) if _is_directory(path))]
        return self._random.choice(places) / self._random.choice(_NAMES)

    def _make(self, path: Path) -> None:
        """Create an entry of any type, if the path is not in use."""
        random = self._random
        if os.path.lexists(path):
            return
        kind = random.choice(self._kinds)
        top = self.source if path.is_relative_to(self.source) else self.target
        entries = [entry for entry in self._all(top) if not _is_directory(entry)]
        if kind == "hard" and entries and top == self.source:  # see `_edit` for the target
            os.link(random.choice(entries), path, follow_symlinks=False)
            return
        if kind == "link":
            path.symlink_to(random.choice(_NAMES))
        elif kind == "fifo":
            os.mkfifo(path)
        elif kind == "device":
            os.mknod(path, 0o20600, os.makedev(1, random.choice([3, 5])))
        elif kind == "directory":
            path.mkdir()
            (path / _KEEP).write_text("kept")
            os.utime(path / _KEEP, (10**9, 10**9))
        else:
            path.write_bytes(random.randbytes(random.choice([0, 1, 2, 5000])))
        self._set(path)

    def _set(self, path: Path) -> None:
        """Set a mode, an owner and a time of an entry."""
        random = self._random
        if not path.is_symlink():
            path.chmod(random.choice([0o700, 0o755] if _is_directory(path) else [0o600, 0o644]))
        if self._devices and random.random() < 0.2:
            os.lchown(path, random.choice([0, 1, 2]), random.choice([0, 1, 2]))
        os.utime(path, (1, random.choice(_TIMES)), follow_symlinks=False)

    def _edit(self, top: Path) -> None:
        """Make a change.

        Names of the target are never linked, because rsync does not separate them.
        """
        random, paths = self._random, self._all(top)
        what = random.choice(["make", "make", "remove", "swap", "swap", "write", "write", "set"])
        if what == "make" or not paths:
            self._make(self._new(top))
            return
        path = random.choice(paths)
        if what in ("remove", "swap"):
            if _is_directory(path):
                shutil.rmtree(path)
            else:
                path.unlink()
            if what == "swap":
                self._make(path)
        elif what == "write" and path.is_file() and not path.is_symlink():
            size = path.stat().st_size + (path.stat().st_nlink > 1)  # identifies the content
            path.unlink()  # one of several names becomes a separate entry
            path.write_bytes(random.randbytes(size + random.choice([0, 1])))
            self._set(path)
        elif path.lstat().st_nlink == 1 or _is_directory(path):
            self._set(path)


def _is_directory(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def protected_by(options: Sequence[str], trees: Trees) -> dict[Path, tuple[int, ...]]:
    """Return entries of the target that an option protects, with their identity.

    For hard-linked files rsync protects only the first name by -u, and it sets the times of a
    directory on an entry that --ignore-existing protects in its place: the results of rsync do not
    apply to these.
    """
    found = set()
    for path in trees.target.rglob("*"):
        inner = path.relative_to(trees.target)
        source = trees.source / inner
        reached = all(_is_directory(trees.source / above) for above in inner.parents)
        if not (reached and os.path.lexists(source)):
            continue
        here, there = source.lstat(), path.lstat()
        regular = stat.S_ISREG(here.st_mode) and stat.S_ISREG(there.st_mode)
        is_newer = regular and there.st_mtime_ns > here.st_mtime_ns
        both = _is_directory(source) and _is_directory(path)
        if ("-u" in options and is_newer) or ("--ignore-existing" in options and not both):
            found.add(inner)
    return _known(trees.target, found)


def joined_names(trees: Trees) -> list[Path]:
    """Return names of linked entries of the target that are not linked in the source.

    rsync sets attributes of an entry in place, for all of its names; fmirror replaces an entry with
    other names. So results of rsync do not apply to names that stay linked, nor to names that it
    links to them.
    """
    groups: dict[int, list[Path]] = {}
    for path in trees.target.rglob("*"):
        status = path.lstat()
        if status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode):
            groups.setdefault(status.st_ino, []).append(path.relative_to(trees.target))
    joined = [
        path
        for group in groups.values()
        for path in group
        if len(inodes := {_inode(trees.source / member) for member in group}) > 1 or None in inodes
    ]
    spoilt = {_inode(trees.source / path) for path in joined} - {None}
    relative_paths = (path.relative_to(trees.source) for path in trees.source.rglob("*"))
    return [*joined, *(path for path in relative_paths if _inode(trees.source / path) in spoilt)]


def _inode(path: Path) -> int | None:
    return path.lstat().st_ino if os.path.lexists(path) else None


def confuses_rsync(options: Sequence[str], trees: Trees) -> bool:
    """Return whether rsync treats a non-directory that --ignore-existing protects as a directory.

    It follows such a symbolic link; for a file it reports an I/O error and deletes nothing.
    """
    return "--ignore-existing" in options and any(
        _is_directory(path) and os.path.lexists(target) and not _is_directory(target)
        for path in trees.source.rglob("*")
        for target in [trees.target / path.relative_to(trees.source)]
    )


def lost_by_rsync(options: Sequence[str], trees: Trees) -> list[Path]:
    """Return names that rsync removes without a replacement: of another type than in the source.

    With --existing rsync makes room for a hard-linked entry, and then finds nothing to update.
    """
    if "--existing" not in options:
        return []
    found = []
    for path in trees.target.rglob("*"):
        source = trees.source / path.relative_to(trees.target)
        if os.path.lexists(source) and not _is_directory(source):
            status = source.lstat()
            if status.st_nlink > 1 and stat.S_IFMT(status.st_mode ^ path.lstat().st_mode):
                found.append(path.relative_to(trees.target))
    return found


def deceptive_names(options: Sequence[str], trees: Trees) -> list[Path]:
    """Return linked names for which the target has a different file of equal size and time.

    Without -c that file is assumed to be correct, and the result depends on which name comes first:
    rsync's order is by name, fmirror's is arbitrary.
    """
    if "-c" in options:
        return []
    files = [path for path in trees.source.rglob("*") if path.is_file() and not path.is_symlink()]
    deceptive = set()
    for path in files:
        status, copy = path.lstat(), trees.target / path.relative_to(trees.source)
        if status.st_nlink > 1 and copy.is_file() and not copy.is_symlink():
            there = copy.lstat()
            alike = (status.st_size, status.st_mtime_ns) == (there.st_size, there.st_mtime_ns)
            if alike and path.read_bytes() != copy.read_bytes():
                deceptive.add(status.st_ino)
    return [path.relative_to(trees.source) for path in files if path.lstat().st_ino in deceptive]


def _known(top: Path, paths: Iterable[Path]) -> dict[Path, tuple[int, ...]]:
    known: dict[Path, tuple[int, ...]] = {}
    for path in paths:
        with suppress(FileNotFoundError):
            status = (top / path).lstat()
            owner = status.st_uid, status.st_gid, status.st_mode
            known[path] = status.st_ino, status.st_size, status.st_mtime_ns, *owner
    return known


def judged(case: Case, above: Path) -> str:
    """Mirror once; return the errors, or an empty text."""
    place = above / f"seed-{case.seed}"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    random = Random(~case.seed)
    trees = Trees(place, random, devices=not (os.geteuid() or case.ordinary))
    judge, state = place / "judge", place / "state"
    trees.target.mkdir(exist_ok=True)
    state.mkdir()
    subprocess.run(["cp", "-a", trees.target, judge], check=True)
    prefix: list[str] = []
    if case.ordinary:
        subprocess.run(["chown", "-hR", f"{ORDINARY}:{ORDINARY}", place], check=True)
        prefix = _SETUID_TO
    left = protected_by(case.options, trees)
    excluded_names = [*joined_names(trees), *lost_by_rsync(case.options, trees)]
    excluded_names += deceptive_names(case.options, trees)
    is_confused = confuses_rsync(case.options, trees)
    sides = f"{trees.source}/", f"{judge}/"
    line = [
        *prefix,
        "timeout",
        _RSYNC_S,
        "rsync",
        "-aH",
        "--modify-window=-1",
        *case.options,
        *sides,
    ]
    by_rsync = subprocess.run(line, check=False, capture_output=True)
    if by_rsync.returncode not in (0, *_SOME_FAILED):
        # rsync gave up ("Hlink node data already has path"), or hangs, like 3.5.0 on seed 20045.
        shutil.rmtree(place)
        return ""
    words = ["-q", *case.more, *case.options, "--state-dir", str(state)]
    words += [str(trees.source), str(trees.target)]
    with Run(case.launcher, *words, program=FMIRROR, prefix=prefix) as run:
        try:
            run.process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            return f"hung: {len(run.processes())} processes are alive after {LIMIT_S:.0f} s"
        finished = run.finish()
    differ = bool(finished.code) != bool(by_rsync.returncode)
    if finished.code not in (0, 1) or (differ and not is_confused):
        said = finished.said + by_rsync.stderr.decode(errors="replace")
        return f"exit code {finished.code}, rsync's {by_rsync.returncode}\n{said}"
    if left != _known(trees.target, left):
        return f"what {case.options[0]} leaves was changed\n{finished.said}"
    if is_confused:
        shutil.rmtree(place)
        return ""
    excluded = [f"--exclude=/{path}" for path in (*left, *excluded_names)]
    excluded += ["--omit-dir-times"] * bool(by_rsync.returncode)  # rsync has not set it then
    different = differences(os.fsencode(judge), os.fsencode(trees.target), *excluded)
    if different:
        return f"differences from rsync's target:\n{different}{finished.said}"
    shutil.rmtree(place)
    return ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run many seeds; print errors, and keep the trees of these."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.fmirror.judge")
    parser.add_argument("--seeds", default="0..100", metavar="FIRST..END")
    names = [str(launcher) for launcher in LAUNCHERS]
    parser.add_argument("--launchers", nargs="+", choices=names, default=names)
    parser.add_argument("--place", type=Path, help="where trees are made")
    options = parser.parse_args(arguments)
    first, end = map(int, options.seeds.split(".."))
    place = options.place or Path(tempfile.mkdtemp(dir="/dev/shm", prefix="fmirror-judge-"))
    place.mkdir(exist_ok=True)
    place.chmod(0o755)
    hangs = wrong = 0
    launchers = [name for name in LAUNCHERS if str(name) in options.launchers]
    ordinary = has_ordinary()
    if not ordinary:
        print("no run is of another user: setpriv or this Python cannot be used for that")
    for done, seed in enumerate(range(first, end), 1):
        case = case_of(seed, launchers, ordinary=ordinary)
        found = judged(case, place)
        hangs += found.startswith("hung")
        wrong += bool(found) and not found.startswith("hung")
        if found:
            print(f"{case}: {found}", flush=True)
        if done % 100 == 0 or seed == end - 1:
            print(f"seeds {first}..{seed + 1}: {done} runs, {hangs} hangs, {wrong} differences")
            sys.stdout.flush()
    return int(hangs + wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
