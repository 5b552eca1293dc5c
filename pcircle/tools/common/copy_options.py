"""The meaning of the options of all commands that copy trees."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Sequence
from typing import Any

from pcircle.core.errors import UsageError
from pcircle.core.values import interval_s, invalid, number
from pcircle.fs.attributes.metadata import Keep
from pcircle.ops.checkpoint.resume import CheckpointOptions

_WORDS = ("mode", "ownership", "timestamps", "xattr", "acl", "links", "stripe", "all")
_ALL = (*_WORDS[:-1], "flags")
# What is asked for by name must be kept, or the entry fails.
# A mode alone would give the group what a list gives to all whom it names; a list has the mode.
_TOGETHER = ("mode", "acl")
_DEMANDED = {kind: (f"{kind}_demanded",) for kind in ("xattr", "acl", "stripe")}


def keep_of(lists: Sequence[str] | None, *, archive: bool) -> Keep:
    """Return the attributes that `--preserve` lists, or all for an archive. UsageError."""
    wanted = {*_ALL, "special"} if archive else set()
    for text in lists or ():
        for name in (name.strip() for name in text.split(",")):
            if name not in _WORDS:
                choices = ", ".join(_WORDS)
                raise UsageError(f"--preserve: unknown attribute '{name}'; choose from {choices}")
            wanted.update(_ALL if name == "all" else (name, *_DEMANDED.get(name, ())))
    if not wanted.isdisjoint(_TOGETHER):
        wanted.update(_TOGETHER)
    kept: dict[str, Any] = dict.fromkeys(wanted, True)
    return Keep(**kept)


def wish_of(args: argparse.Namespace) -> CheckpointOptions:
    """Return the checkpoint options. UsageError."""
    asked = [
        option
        for option, value in (
            ("--resume", args.resume),
            ("--restart", args.restart),
            ("--checkpoint-dir", args.checkpoint_dir),
            ("--checkpoint-interval", args.checkpoint_interval),
        )
        if value
    ]
    if args.no_checkpoint and asked:
        raise UsageError(f"--no-checkpoint cannot be combined with {asked[0]}")
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


def limit_of(option: str, text: str | None, parse: Any) -> float | None:
    """Return the rate of an option, or None. UsageError."""
    if text is None:
        return None
    limit = number(option, text, parse)
    if not 0 < limit < math.inf:
        raise invalid(option, text, "rate must be positive and finite")
    return limit
