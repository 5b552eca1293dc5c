"""The tree for searches: odd names, types, modes, owners, sizes and times.

Times are in the middle of days and minutes, so that two searches that begin a moment apart see them
on the same side of a limit.
"""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import time

HOUR_S = 3600
DAY_S = 24 * HOUR_S
NAMES = [
    b"plain", b"a", b"b", b"ab", b"abc.txt", b"B", b"ABC.TXT", b".hidden", b"with space",
    b"tab\there",
    b"new\nline", b"star*", b"what?", b"[set]", b"a]b", b"back\\slash", b'quo"te', b"single'", b"~",
    b"-dash", b"!bang", b"(paren)", b"a,b", b"caret^", b"dollar$", b"{brace}", b"plus+", b"a.b.c",
    b"caf\xc3\xa9", b"\xff\xfe", b"\xe4\xb8\xad", b"x" * 200, b"bell\a", b"a-c", b"zz9", b"0", b"_",
]  # fmt: skip
SIZES = [0, 1, 2, 511, 512, 513, 1023, 1024, 1025, 4096, 10_000, 1 << 20, (1 << 20) + 1]
MODES = [0o644, 0o600, 0o777, 0o000, 0o755, 0o4755, 0o2755, 0o1777, 0o444, 0o111, 0o640, 0o7777]


def build_tree(top: bytes) -> bytes:
    """Build the tree."""
    now_s = time.time()
    os.makedirs(top)
    for byte in set(range(1, 256)) - {ord("/"), ord(".")}:
        _file(top + b"/every/" + bytes([byte]), byte % 3)
    directories = [
        b"",
        b"/d",
        b"/d/dd",
        b"/d/dd/ddd",
        b"/B",
        b"/.hid",
        b"/sp ace",
        b"/\xff",
        b"/x.txt",
    ]
    for number, directory in enumerate(directories):
        os.makedirs(top + directory, exist_ok=True)
        for place in range(number % 4, len(NAMES), 3):
            size = SIZES[(place + number) % len(SIZES)]
            path = top + directory + b"/" + NAMES[place]
            if not os.path.lexists(path):
                _file(path, size)
                if os.geteuid() == 0:
                    os.chown(
                        path, [0, 0, 1, 65534, 54321][place % 5], [0, 1, 65534, 54322][place % 4]
                    )
                os.chmod(path, MODES[(place + 5 * number) % len(MODES)])
    os.makedirs(top + b"/empty/in/side")
    os.mkdir(top + b"/shut")
    os.truncate(_file(top + b"/sparse", 0), 3 << 20)
    _links(top)
    _specials(top)
    os.chmod(top + b"/shut", 0o1000 if os.geteuid() == 0 else 0o1500)  # its owner may list it
    os.chmod(top + b"/B", 0o2750)
    ages_s = [0.5, 1.5, 2.5, 10.5, 200.5, 400.5, 4000.5]
    for number, path in enumerate(sorted(_all(top))):
        age_s = ages_s[number % len(ages_s)] * DAY_S - (number % 5) * HOUR_S
        if number % 11 == 0:
            age_s = (number % 40 + 0.5) * 60
        at = int((now_s - age_s) * 1e9) + number
        used = int((now_s - ages_s[number % 3] * DAY_S) * 1e9) + number
        os.utime(path, ns=(used, at), follow_symlinks=False)
    for _ in range(2):  # later reads do not change times again
        subprocess.run([b"find", b"-L", top, b"-empty"], capture_output=True, check=False)
        subprocess.run(
            [b"find", top, b"-empty", b"-printf", b"%l"], capture_output=True, check=True
        )
    return top


def _all(top: bytes) -> list[bytes]:
    found = [top]
    for directory, directories, files in os.walk(top):
        found += [os.path.join(directory, name) for name in (*directories, *files)]
    return found


def _file(path: bytes, size: int) -> bytes:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(b"x" * size)
    return path


def _links(top: bytes) -> None:
    os.makedirs(top + b"/links")
    for name, target in {
        b"to file": b"../plain", b"to dir": b"../d/dd", b"nowhere": b"nothing", b"loop": b"loop",
        b"up": b"..", b"here": b".", b"to fifo": b"../fifo", b"odd": b"\xff\n*",
        b"through": b"to file/x",
        b"to link": b"to file",
    }.items():  # fmt: skip
        os.symlink(target, top + b"/links/" + name)
    os.link(top + b"/sparse", top + b"/links/hard")
    os.link(top + b"/sparse", top + b"/d/hard too")


def _specials(top: bytes) -> None:
    os.mkfifo(top + b"/fifo", 0o600)
    os.mkfifo(top + b"/d/pipe")
    here = os.getcwdb()
    os.chdir(top)  # the path of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind("socket")
    finally:
        os.chdir(here)
    if os.geteuid() == 0:
        os.mknod(top + b"/d/char", stat.S_IFCHR | 0o600, os.makedev(1, 3))
        os.mknod(top + b"/block", stat.S_IFBLK | 0o660, os.makedev(7, 250))
