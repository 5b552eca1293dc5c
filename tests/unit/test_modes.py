"""Modes are parsed like chmod parses them.

Some expressions are drawn from a seed for each run; ``tox -e soak`` compares two hundred of them
with three umasks on all modes of files and directories. chmod is started once for many files.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pcircle.fs.attributes.modes import ALL, parse_mode
from tests.conftest import SOAK
from tests.tools.fcp.access import drawn_seed

UMASKS = (0o022, 0o077, 0o7)
KNOWN = [
    *("0", "7", "755", "0755", "00755", "04755", "4755", "2000", "02000", "002000", "000000644"),
    *("+x", "-w", "=", "=rw", "+X", "-s", "=t", "u=g", "g=u", "o=u,u=o", "a=", "ugo+rwxXst", "u+s"),
    *("u=rwx,go=rX", "a-rw+x", "g=s", "o+t", "u+t", "o+s", "+0111", "-22", "=7000", "=0,+1", "a+"),
    *("ug=o-x", "u-s,g+s", "=g", "+o", "-u", "u+Xr", "aa=,uu+x", "u=x+s-x", "g-X", "=X", "u=g+"),
    "+",
]
WRONG = ["", "8", "07778", "10000", "755x", "u", "x", "u+rq", "u=rg", "u+7", "+9", ",", "u+r,"]
WRONG += ["+7x", "=rw u", "a=rwx,,", "++x,", "7777777", "+10000", "gr", "\u0663", "o=ux"]


def _expression(rng: random.Random) -> str:
    """Draw a symbolic mode of one to three clauses."""

    def operation() -> str:
        if rng.random() < 0.25:
            return rng.choice("+-=") + rng.choice("ugo")
        return rng.choice("+-=") + "".join(rng.sample("rwxXst", rng.randrange(5)))

    def clause() -> str:
        who = "".join(rng.sample("ugoa", rng.randrange(3)))
        return who + "".join(operation() for _ in range(rng.randrange(1, 4)))

    return ",".join(clause() for _ in range(rng.randrange(1, 4)))


@pytest.fixture(scope="module")
def entries() -> Iterator[Path]:
    """Create a file and a directory for each mode, in memory where possible."""
    base = next(filter(os.path.isdir, ("/dev/shm", "/tmp")))
    place = Path(base, f"pcircle-modes-{os.getpid()}")
    place.mkdir()
    for number in range(ALL + 1):
        (place / f"f{number}").touch()
        (place / f"d{number}").mkdir()
    yield place
    shutil.rmtree(place)


def _judged(entries: Path, text: str, umask: int, modes: range) -> dict[str, int]:
    """Return the modes that chmod sets for the entries, by name."""
    names = [f"{kind}{mode}" for kind in "fd" for mode in modes]
    fd = os.open(entries, os.O_RDONLY)
    try:
        for name in names:
            os.chmod(name, int(name[1:]), dir_fd=fd)
        subprocess.run(["chmod", "--", text, *names], check=True, cwd=entries, umask=umask)
        return {name: os.stat(name, dir_fd=fd).st_mode & ALL for name in names}
    finally:
        os.close(fd)


@pytest.mark.skipif(os.geteuid() != 0, reason="others may not set all bits")
def test_modes_are_those_of_chmod(entries: Path) -> None:
    rng = random.Random(seed := drawn_seed())
    drawn = [_expression(rng) for _ in range(200 - len(KNOWN) if SOAK else 20)]
    for text in KNOWN + drawn if SOAK else rng.sample(KNOWN, 10) + drawn:
        for umask in UMASKS if SOAK else rng.sample(UMASKS, 1):
            modes = range(ALL + 1) if SOAK else range(rng.randrange(7), ALL + 1, 7)
            change = parse_mode(text, umask)
            ours = {f"f{mode}": change.of(mode, is_directory=False) for mode in modes}
            ours |= {f"d{mode}": change.of(mode, is_directory=True) for mode in modes}
            theirs = _judged(entries, text, umask, modes)
            wrong = {name for name in theirs if ours[name] != theirs[name]}
            assert wrong == set(), f"{text!r}, umask {umask:o}, seed {seed}"


def test_invalid_modes_are_refused() -> None:
    """chmod refuses them too, which validates the list."""
    for text in WRONG:
        with pytest.raises(ValueError, match="invalid mode"):
            parse_mode(text)
        done = subprocess.run(["chmod", "--", text, "/nowhere"], capture_output=True, check=False)
        assert b"invalid mode" in done.stderr, text
