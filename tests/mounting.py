"""The programs mount and umount, for systems without them; they only need mount(2).

`tests/stand_ins` starts them, the last directory of PATH while tests run.  They know the options
that tests use.  File systems on block devices and loop devices are left to the real programs.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import sys

_READ_ONLY = 0x1
_REMOUNT = 0x20
_NO_ATIME = 0x400
_BIND = 0x1000
_RECURSIVE = 0x4000
_PRIVATE = 0x40000
_DETACH = 0x2
_FAILED = 32  # the exit code of the real programs

# Options that mount(2) takes as flags; all others are passed as text to the file system.
_FLAGS = {"ro": _READ_ONLY, "noatime": _NO_ATIME, "remount": _REMOUNT, "bind": _BIND}
_OPERATIONS = {
    "--bind": _BIND,
    "--rbind": _BIND | _RECURSIVE,
    "--make-private": _PRIVATE,
    "--make-rprivate": _PRIVATE | _RECURSIVE,
}


def mount(words: list[str]) -> None:
    """Mount a file system that has no device, or change a mount, like mount(8)."""
    parser = argparse.ArgumentParser(prog="mount", allow_abbrev=False)
    parser.add_argument("-t", dest="kind", default="")
    parser.add_argument("-o", dest="options", default="")
    for name, operation in _OPERATIONS.items():
        parser.add_argument(name, dest="flags", action="store_const", const=operation, default=0)
    parser.add_argument("source", nargs="?", default="none")
    parser.add_argument("target")
    args = parser.parse_args(words)
    options = args.options.split(",") if args.options else []
    flags = args.flags
    for option in options:
        flags |= _FLAGS.get(option, 0)
    if not args.kind and not flags & (_BIND | _PRIVATE | _REMOUNT):
        sys.exit(f"mount: {args.target}: devices are only mounted by the program of util-linux")
    text = ",".join(option for option in options if option not in _FLAGS)
    _call("mount", args.target, args.source, args.target, args.kind, ctypes.c_ulong(flags), text)


def unmount(words: list[str]) -> None:
    """Unmount a file system, like umount(8)."""
    parser = argparse.ArgumentParser(prog="umount", allow_abbrev=False)
    parser.add_argument("-l", dest="flags", action="store_const", const=_DETACH, default=0)
    parser.add_argument("target")
    args = parser.parse_args(words)
    _call("umount2", args.target, args.target, args.flags)


def _call(name: str, path: str, *arguments: str | int | ctypes.c_ulong) -> None:
    """Call a function of the C library; if it fails, report the error and exit."""
    function = getattr(ctypes.CDLL(None, use_errno=True), name)
    if function(*(os.fsencode(word) if isinstance(word, str) else word for word in arguments)):
        program = "mount" if name == "mount" else "umount"
        print(f"{program}: {path}: {os.strerror(ctypes.get_errno())}.", file=sys.stderr)
        sys.exit(_FAILED)


if __name__ == "__main__":
    {"mount": mount, "umount": unmount}[sys.argv[1]](sys.argv[2:])
