"""Copies by root, of and into directories that another user owns and keeps changing.

The attacker is an unprivileged process that swaps, as fast as it can, directories and files of the
source and of the target for symbolic links to files of other users: it wants root to write, chown
or remove something outside of the copy (the *victim*), or to copy a secret to a readable place. The
test compares every attribute of the victim, and searches for the secret in the copy. fcp may fail
entries; it must end as documented, and touch nothing outside.
"""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from random import Random
from typing import NamedTuple

from tests import attacks
from tests.attacks import NOBODY, Attack, Round, changes, hooked, portrait, run_under_attack
from tests.tools.fcp.running import Launcher, clean_environment, command
from tests.tools.fcp.trees import content, make_directory, remove_tree, write_file

# Opens directories of both sides through links.
FOLLOWING = """
from pcircle.fs import directories
_init = directories.Directories.__init__
def follow(self, *arguments, **options):
    options["follow"] = True
    _init(self, *arguments, **options)
directories.Directories.__init__ = follow
"""
_REFUSED = 2
SECRET = b"the content of a file that is nobody's business"
OWN, LARGE = b"the victim's own", b"the victim's large one"
OPTIONS: tuple[tuple[str, ...], ...] = (
    ("-a",),
    ("-a", "--inplace"),
    ("-a", "--verify"),
    ("-a", "-u"),
    ("-a", "-f", "--inplace"),
    ("-p", "--fsync"),
    ("-a", "-s"),
    ("-a", "--sparse=always"),
)


def _pairs(place: bytes, sides: Sequence[bytes], rng: Random) -> list[tuple[bytes, bytes]]:
    """Return the pairs to swap; the second of each is created here, with permitted links."""
    pairs = []
    for side in sides:
        top = os.path.join(place, side)
        bait = _bait(place, side)
        for name in (b"d0", b"d1", b"d1/inner", b"large", *([b""] if b"/" in side else [])):
            link = os.path.join(bait, name.replace(b"/", b"-") or b"itself")
            os.symlink(os.path.join(place, b"victim"), link)
            pairs.append((os.path.join(top, name).rstrip(b"/"), link))
        for number in range(0, 40, 5):
            for name in (b"d0/f%d" % number, b"d1/inner/f%d" % number):
                link = os.path.join(bait, name.replace(b"/", b"-"))
                kind = rng.randrange(4)
                if kind == 0:
                    os.mkfifo(link)
                else:
                    wanted = rng.choice((b"victim/secret", b"victim/f%d" % number))
                    os.symlink(os.path.join(place, wanted), link)
                pairs.append((os.path.join(top, name), link))
        for number in range(0, 40, 10):
            link = os.path.join(bait, b"hard-d0-f%d" % number)
            if os.path.exists(link):
                pairs.append((os.path.join(top, b"d0/f%d" % number), link))
        link = os.path.join(bait, b"of-large")
        os.symlink(os.path.join(place, b"victim", b"secret"), link)
        pairs.append((os.path.join(top, b"large", b"file"), link))
    rng.shuffle(pairs)
    return pairs


def _bait(place: bytes, side: bytes) -> bytes:
    """Return the directory of the replacements for entries of a side."""
    return os.path.join(place, b"bait-" + side.replace(b"/", b"-"))


def make_bait(place: bytes, side: bytes) -> bytes:
    """Create a directory in which the attacker may have the replacements for entries of a side."""
    bait = _bait(place, side)
    os.mkdir(bait)
    os.chown(bait, NOBODY, NOBODY)
    return bait


def _replace_temporaries(place: bytes, first: bytes, second: bytes, rng: Random) -> None:
    for inner in (b"", b"d0", b"d1", b"large"):
        directory = os.path.join(place, b"copy", inner)
        with suppress(OSError):
            for name in os.listdir(directory):
                if name.startswith(b".fcp-") and not name.startswith(b".fcp-ch"):
                    path = os.path.join(directory, name)
                    os.unlink(path)
                    os.symlink(os.path.join(place, b"victim", b"f5"), path)


# ---- the tree ----------------------------------------------------------------------------------


def _build(place: bytes, *, hard_links: bool) -> None:
    """Create a victim that root owns, and an attacker's source with an older copy of it.

    With `hard_links` the attacker has second names of some of the victim's files.
    """
    os.chmod(place, 0o755)
    victim = make_directory(place, b"victim")
    write_file(victim + b"/secret", SECRET * 3000, 0o600)
    for number in range(0, 40, 5):
        write_file(victim + b"/f%d" % number, OWN, 0o640)
    write_file(victim + b"/file", LARGE * 1000, 0o600)
    make_directory(victim, b"inner")
    os.symlink(b"nowhere", victim + b"/link")
    for side, word in ((b"source", b"new"), (b"copy", b"old")):
        top = make_directory(place, side)
        for inner in (b"d0", b"d1/inner", b"large"):
            make_directory(top, inner)
        for number in range(40):
            write_file(top + b"/d0/f%d" % number, word * (number + 1))
            write_file(top + b"/d1/inner/f%d" % number, word * (number + 1))
        for number in range(4):
            large = content(f"{word!r}{number}", 9 << 20)
            write_file(top + (b"/large/file%d" % number if number else b"/large/file"), large)
        for directory, directories, files in os.walk(top):
            for name in (*directories, *files):
                os.chown(os.path.join(directory, name), NOBODY, NOBODY)
        os.chown(top, NOBODY, NOBODY)
        bait = make_bait(place, side)
        for number in range(0, 40, 10) if hard_links else ():
            own = write_file(victim + b"/hard-%b%d" % (side, number), b"linked elsewhere", 0o640)
            os.link(own, bait + b"/hard-d0-f%d" % number)
    for name in os.listdir(place + b"/copy/d0"):  # gives -u something to do
        os.utime(place + b"/copy/d0/" + name, ns=(0, 0))


def _secrets(place: bytes) -> list[str]:
    """Return the places that contain secrets of the victim."""
    found = []
    for directory, directories, files in os.walk(place):
        if directory == place:
            directories.remove(b"victim")
        for name in files:
            path = os.path.join(directory, name)
            if stat.S_ISREG(os.lstat(path).st_mode):
                with open(path, "rb") as stream:
                    data = stream.read()
                if any(secret in data for secret in (SECRET, OWN, LARGE)):
                    found.append(f"a secret is in {path!r}")
    return found


# ---- a round -----------------------------------------------------------------------------------


class Tool(NamedTuple):
    """A tool that copies.

    It has a package and two kinds of options: some that vary between rounds and some that all
    rounds have; ``@`` in them is the directory. `prepare` creates the other files that the tool
    needs, and returns the directories in which entries are swapped. The tool may end with one of
    `codes`. `expected` returns outputs of which one proves the effect of some options; after an
    interruption it is optional.
    """

    package: str
    options: Sequence[Sequence[str]]
    always: Sequence[str]
    prepare: Callable[[bytes, Sequence[str]], Sequence[bytes]] = lambda *_: (b"copy", b"source")
    codes: Sequence[int] = (0, 1, 3)
    expected: Callable[[Sequence[str]], Sequence[bytes]] = lambda _: ()


COPY = Tool("pcircle.tools.fcp", OPTIONS, ("-T",))


def play(
    place: bytes, seed: int, launchers: Sequence[Launcher], hook: str = "", tool: Tool = COPY
) -> Round:
    """Play one round in the emptied directory `place`; `hook` weakens a tool, to be detected.

    AssertionError, with the seed, if it ends in a forbidden way.
    """
    rng = Random(f"attack {seed}")
    options, launcher = rng.choice(tool.options), rng.choice(launchers)
    # --inplace writes into the existing file by design, even if it is linked elsewhere.
    _build(place, hard_links="--inplace" not in options)
    sides = tool.prepare(place, options)
    before = portrait(place + b"/victim")
    interrupted = launcher.jobs and rng.random() < 0.4
    resuming = ["--resume", "--checkpoint-interval", "0.05"]
    checkpoint = resuming if interrupted else ["--no-checkpoint"]
    option_words = [option.replace("@", os.fsdecode(place)) for option in options]
    proofs = () if interrupted or hook else tool.expected(options)
    quiet = ["--progress=never"] if proofs else ["-q"]
    arguments = [*option_words, "--chunksize", "4M", *quiet, *checkpoint, *tool.always]
    line = command(launcher, [*arguments, place + b"/source", place + b"/copy"], (tool.package,))
    line = hooked(line, hook, f"{tool.package}.cli")
    attack = Attack(seed, partial(_pairs, place, sides), 0.02, partial(_replace_temporaries, place))
    killed = partial(_begin_and_kill, line, rng.random() * 0.6) if interrupted else _nothing
    finished, swaps = run_under_attack(line, attack, killed)
    text = finished.stderr.decode(errors="replace")[-2000:]
    context = f"seed {seed}, {launcher}, {' '.join(options)}: {finished.returncode}, {text}"
    if not hook:
        assert finished.returncode in tool.codes, context
        if proofs and finished.returncode != _REFUSED:
            assert any(proof in finished.stderr for proof in proofs), context
    escapes = [f"{context}: {secret}" for secret in _secrets(place)]
    escapes += changes(context, before, portrait(place + b"/victim"))
    for name in os.listdir(place):
        path = os.path.join(place, name)
        if os.path.isdir(path) and not os.path.islink(path):
            remove_tree(path)
        else:
            os.unlink(path)
    return Round(swaps, escapes)


def _nothing() -> None:
    """Do not interrupt the copy."""


def _begin_and_kill(line: Sequence[str | bytes], after_s: float) -> None:
    """Start and kill a run, whose result the next run continues."""
    quiet = subprocess.DEVNULL
    begun = subprocess.Popen(
        [*line, "--bwlimit", "50M"],
        stdin=quiet,
        stdout=quiet,
        stderr=quiet,
        start_new_session=True,
        env=clean_environment(),
    )
    time.sleep(after_s)
    with suppress(ProcessLookupError):
        os.killpg(begun.pid, signal.SIGKILL)
    begun.wait()


def main(
    arguments: Sequence[str] | None = None, tool: Tool = COPY, name: str = "tests.tools.fcp.attacks"
) -> int:
    """Run as ``python -m`` of this name: play rounds until there were enough swaps."""
    from tests.tools.fcp import kills

    def played(place: bytes, seed: int, launchers: Sequence[Launcher], hook: str) -> Round:
        return play(place, seed, launchers, hook, tool)

    return attacks.main(name, played, kills.LAUNCHERS, FOLLOWING, arguments)


if __name__ == "__main__":
    sys.exit(main())
