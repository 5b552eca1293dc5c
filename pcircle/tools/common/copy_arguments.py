"""The options of all commands that copy trees.

This module imports only what is needed to parse a command line.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Sequence

import msgspec

from pcircle.cli.arguments import POLITE, OptionalValue, add_noatime, add_polite, add_stop
from pcircle.core.errors import UsageError
from pcircle.core.units import interval_s, invalid, number
from pcircle.fs.attributes.metadata import PreservedAttributes
from pcircle.ops.checkpoint.plan import CheckpointOptions

_WORDS = ("mode", "ownership", "timestamps", "xattr", "acl", "links", "stripe", "all")
_ALL = (*_WORDS[:-1], "flags")
# Mode and ACL must be preserved together. If a file has an ACL, the group bits of its mode are the
# mask of the ACL. If only the mode were preserved, these bits would become permissions of the
# group. Conversely, an ACL includes the mode.
_TOGETHER = ("mode", "acl")
# If an attribute that the user lists by name cannot be preserved, the entry fails.
_DEMANDED = {kind: (f"{kind}_demanded",) for kind in ("xattr", "acl", "stripe")}


def keep_of(lists: Sequence[str] | None, *, archive: bool) -> PreservedAttributes:
    """Return the attributes that `--preserve` lists, and if `archive` is set, all of them.

    Raise UsageError if an attribute is unknown.
    """
    wanted = {*_ALL, "special"} if archive else set()
    for text in lists or ():
        for name in (name.strip() for name in text.split(",")):
            if name not in _WORDS:
                choices = ", ".join(_WORDS)
                raise UsageError(f"--preserve: unknown attribute '{name}'; choose from {choices}")
            wanted.update(_ALL if name == "all" else (name, *_DEMANDED.get(name, ())))
    if not wanted.isdisjoint(_TOGETHER):
        wanted.update(_TOGETHER)
    return msgspec.structs.replace(PreservedAttributes(), **dict.fromkeys(wanted, True))


def checkpoint_options_of(args: argparse.Namespace) -> CheckpointOptions:
    """Return the checkpoint options. Raise UsageError if they conflict."""
    conflicting = [
        option
        for option, value in (
            ("--resume", args.resume),
            ("--restart", args.restart),
            ("--checkpoint-dir", args.checkpoint_dir),
            ("--checkpoint-interval", args.checkpoint_interval),
        )
        if value
    ]
    if args.no_checkpoint and conflicting:
        raise UsageError(f"--no-checkpoint cannot be combined with {conflicting[0]}")
    if args.resume and args.restart:
        raise UsageError("--resume cannot be combined with --restart")
    directory = args.checkpoint_dir
    interval = args.checkpoint_interval
    return CheckpointOptions(
        interval_s=60.0 if interval is None else interval_s("--checkpoint-interval", interval),
        directory=None if directory is None else os.path.abspath(os.fsencode(directory)),
        resume=args.resume,
        restart=args.restart,
        never=args.no_checkpoint,
    )


def limit_of(option: str, text: str | None, parse: Callable[[str], float]) -> float | None:
    """Return the rate that an option specifies, or None. Raise UsageError if it is invalid."""
    if text is None:
        return None
    limit = number(option, text, parse)
    if not 0 < limit < math.inf:
        raise invalid(option, text, "rate must be positive and finite")
    return limit


BARE_PRESERVE = "mode,ownership,timestamps"

# Options whose value may be omitted. A value must be joined to them with `=`.
BARE = {
    "--preserve": f"--preserve={BARE_PRESERVE}",
    "--reflink": "--reflink=always",
    "--signature": "--signature=xxh128",
    "-s": "-sxxh128",
    **POLITE,
}


class _BareList(OptionalValue, argparse._AppendAction):
    """An option with an optional value that may be repeated."""

    __call__ = argparse._AppendAction.__call__


def add_preserve(add: Callable[..., object], default: str) -> None:
    """Add the option for attributes to preserve, whose help shows the `default`."""
    add(
        "--preserve",
        metavar="LIST",
        action=_BareList,
        help=f"attributes to keep (default: {default}): mode, ownership, timestamps, xattr, acl, "
        "links, stripe, all",
    )


def add_checkpoint(p: argparse.ArgumentParser) -> None:
    """Add the options for checkpoints and for an early stop."""
    add = p.add_argument_group("Checkpoints").add_argument
    add("--resume", action="store_true", help="resume, or start if there is no checkpoint")
    add("--restart", action="store_true", help="discard the checkpoint and start over")
    add("--checkpoint-interval", metavar="T", help="checkpoint interval (default: 60 s)")
    add(
        "--checkpoint-dir",
        metavar="DIR",
        help="directory of the checkpoint (default: next to the copy)",
    )
    add("--no-checkpoint", action="store_true", help="write no checkpoint")
    add_stop(add)


def add_copying(add: Callable[..., object]) -> None:
    """Add the options that determine how and at what rate content is copied."""
    add("--chunksize", metavar="SIZE", help="chunk size of large files (default: adaptive)")
    when = ("auto", "always", "never")
    add(
        "--reflink",
        action=OptionalValue,
        choices=when,
        default="auto",
        help="clone files: if possible (auto), always (also bare) or never",
    )
    add(
        "--sparse",
        choices=when,
        default="auto",
        help="keep holes (auto), make holes of zeros (always), or fill holes",
    )
    add(
        "--stripe",
        metavar="COUNT[:SIZE]",
        help="Lustre layout of new files: COUNT, all, keep or default",
    )
    add("--bwlimit", metavar="RATE", help="total bandwidth limit in bytes per second")
    add(
        "--ops-limit",
        metavar="N",
        help="total limit of metadata operations per second",
    )
    add_polite(add)
    add_noatime(add)


def add_signature(add: Callable[..., object]) -> None:
    """Add the option that requests a signature."""
    add(
        "-s",
        "--signature",
        action=OptionalValue,
        metavar="ALGORITHM",
        help="print the signature of the copy: xxh128 (default), sha256, sha512, blake2b, blake3",
    )


def joined(arguments: Sequence[str]) -> Sequence[str]:
    """Return the arguments with `--stripe` joined to its value, because -1 looks like an option."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    if "--stripe" not in arguments[: end - 1]:
        return arguments
    at = arguments.index("--stripe")
    return [*arguments[:at], "=".join(arguments[at : at + 2]), *arguments[at + 2 :]]
