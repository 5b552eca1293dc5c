"""Mirrors by root of and to trees that another user owns and keeps changing, like those of fcp.

The rules for fcp also apply to fmirror; in addition, an entry that it removes, replaces, renames,
links or moves to a backup must be the one that it has found, and never the target of a link. The
attacker also controls the trees in options, and the snapshots in B.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

from tests.attacks import NOBODY
from tests.tools.fcp import attacks
from tests.tools.fcp.attacks import Tool
from tests.tools.fcp.running import clean_environment, command
from tests.tools.fcp.trees import make_directory, write_file

OPTIONS: tuple[tuple[str, ...], ...] = (
    ("--delete",),
    ("--delete", "-c"),
    ("--delete", "--verify"),
    ("--delete", "--max-delete", "1000"),
    ("--delete", "--ignore-errors", "-i"),
    ("-u",),
    ("--delete", "-I", "--fsync"),
    ("--delete", "--backup-dir=@/old"),
    ("--delete", "--ignore-errors", "--backup-dir=@/old", "-c"),
    ("--delete", "--moved", "--ignore-errors"),
    ("--delete=during",),
    ("--delete=during", "-c", "-i", "--max-delete", "1000"),
    ("--link-dest=@/older", "--compare-dest=@/old"),
    ("--delete", "--link-dest=@/older", "--ignore-errors"),
    ("--snapshot=2026-01-01",),
    ("--snapshot=2026-01-01", "--keep=1", "--ignore-errors"),
    ("--delete", "--chown=1:1", "--chmod=go+rX", "--ignore-errors"),
    ("--copy-dest=@/older", "--delete"),
    ("--copy-dest=@/older", "--copy-dest=@/old", "-c"),
    ("--reflink-dest=@/older", "--delete=during", "--ignore-errors"),
    ("--delete", "--since-manifest=@/manifest", "--new-manifest=@/manifest"),
    ("--delete", "--since-manifest=@/manifest", "-c", "--ignore-errors"),
    ("-m", "--delete", "--exclude=f1*"),
)
_LAST = b"copy/2020-01-01"
_MADE_NS = 10**18


def prepare(place: bytes, options: Sequence[str]) -> Sequence[bytes]:
    """Create names that only the target has, other trees, and moved files."""
    made = [place + b"/" + side for side in _trees(place, options)]
    for inner in (b"d0/gone", b"d1/inner/gone"):
        gone = make_directory(place, b"copy", inner)
        for number in range(10):
            write_file(gone + b"/f%d" % (5 * number), b"to go")
            write_file(gone[:-5] + b"/more%d" % number, b"to go")
    for number in range(30):
        here, there = (b"d0", b"d1/inner")[:: 1 if number % 2 else -1]
        for path in (b"source/%b/now %d" % (here, number), b"copy/%b/was %d" % (there, number)):
            path = write_file(place + b"/" + path, b"moved" * (number + 1))
            os.utime(path, ns=(_MADE_NS, _MADE_NS))
    for top in (place + b"/copy", place + b"/source", *made):
        for directory, directories, files in os.walk(top):
            for name in (b"", *directories, *files):
                path = os.path.join(directory, name)
                os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    sides = [entry[len(place) + 1 :] for entry in made]
    if "@/manifest" in " ".join(options):
        _make_manifest(place)
    if any(option.startswith("--snapshot") for option in options):
        return [*sides, b"source", b"copy/.fmirror-snapshot"]
    return [*sides, b"source", b"copy"]


def _make_manifest(place: bytes) -> None:
    """Create the manifest of a complete run, then change the source in some places."""
    source, target, manifest = (place + b"/" + name for name in (b"source", b"copy", b"manifest"))
    lines: tuple[list[str | bytes], ...] = (
        command(None, ["-q", "--allow-foreign", source, target], ("pcircle.tools.fmirror",)),
        command(None, ["-q", "--force", "-o", manifest, target], ("pcircle.tools.fsum",)),
    )
    for line in lines:
        subprocess.run(line, check=True, capture_output=True, env=clean_environment())
    for number in range(0, 40, 3):
        for inner in (b"d0", b"d1/inner"):
            with open(source + b"/%b/f%d" % (inner, number), "ab") as stream:
                stream.write(b"more")
    os.unlink(source + b"/d0/f7")


def _trees(place: bytes, options: Sequence[str]) -> list[bytes]:
    """Create the trees for options: an older one has the source's entries, except for a file."""
    words = " ".join(options)
    made = [side for side in (b"older", b"old") if f"@/{side.decode()}" in words]
    if "--snapshot" in words:
        os.symlink(os.path.basename(_LAST), place + b"/copy/latest")
        made.append(_LAST)
        attacks.make_bait(place, b"copy/.fmirror-snapshot")
    for side in made:
        attacks.make_bait(place, side)
        for inner in (b"d0", b"d1/inner", b"large"):
            make_directory(place, side, inner)
            for name in () if side == b"old" else os.listdir(place + b"/source/" + inner):
                path = os.path.join(inner, name)
                with open(place + b"/source/" + path, "rb") as stream:
                    copy = write_file(os.path.join(place, side, path), stream.read())
                status = os.stat(place + b"/source/" + path)
                os.utime(copy, ns=(status.st_atime_ns, status.st_mtime_ns))
                os.chmod(copy, status.st_mode & 0o7777)
    return made


def _expected_output(options: Sequence[str]) -> Sequence[bytes]:
    """Return the messages about a manifest: it is used, or the attacker has changed the target."""
    if "@/manifest" not in " ".join(options):
        return ()
    return b"the target is not read:", b"examining the entire target: the target was changed"


MIRROR = Tool(
    "pcircle.tools.fmirror", OPTIONS, ("--allow-foreign",), prepare, (0, 1, 2, 3), _expected_output
)


if __name__ == "__main__":
    sys.exit(attacks.main(tool=MIRROR, name="tests.tools.fmirror.attacks"))
