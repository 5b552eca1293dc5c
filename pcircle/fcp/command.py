"""What the options of fcp mean, and running a copy with them."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from pcircle.checkpoint.resume import Wish
from pcircle.copying.existing import Existing
from pcircle.errors import UsageError
from pcircle.fs.metadata import Keep
from pcircle.tool.options import common
from pcircle.tool.times import stop_of
from pcircle.transfer.program import Options, run_copy
from pcircle.ui.values import (
    chunk_bytes,
    interval_s,
    invalid,
    number,
    parse_number,
)
from pcircle.units import parse_size

if TYPE_CHECKING:
    pass

_WORDS = ("mode", "ownership", "timestamps", "xattr", "acl", "links", "stripe", "all")
_ALL = (*_WORDS[:-1], "flags")
# What is asked for by name must be kept, or the entry fails.
# A mode alone would give the group what a list gives to all whom it names; a list has the mode.
_TOGETHER = ("mode", "acl")
_DEMANDED = {kind: (f"{kind}_demanded",) for kind in ("xattr", "acl", "stripe")}

Links = Literal["all", "operands", "none"]


def copy_typed(typed: argparse.Namespace) -> int:
    """Carry out a parsed command line; returns the exit code. UsageError if it makes no sense."""
    return run_copy(_options(typed))


def _options(typed: argparse.Namespace) -> Options:
    operands = [os.fsencode(word) for word in typed.operands]
    into = typed.target_directory is not None
    if into and typed.no_target_directory:
        raise UsageError("-t cannot be combined with -T")
    target = os.fsencode(typed.target_directory) if into else None
    if not operands:
        raise UsageError("missing operands SRC and DST")
    if target is None:
        if len(operands) == 1:
            raise UsageError(f"missing destination after '{typed.operands[0]}'")
        target = operands.pop()
    if typed.no_target_directory and len(operands) > 1:
        raise UsageError(f"-T takes one SRC and one DST: extra operand '{typed.operands[2]}'")
    if not target or not all(operands):
        raise UsageError("empty file name")
    return Options(
        **common(typed),
        tool="fcp",
        sources=tuple(operands),
        target=target,
        into=into,
        exact=typed.no_target_directory,
        keep=_keep(typed),
        chunk_bytes=None if typed.chunksize is None else chunk_bytes(typed.chunksize),
        dry=typed.dry_run,
        links=typed.links,
        bytes_per_s=_limit("--bwlimit", typed.bwlimit, parse_size),
        operations_per_s=_limit("--ops-limit", typed.ops_limit, parse_number),
        reflink=typed.reflink,
        sparse=typed.sparse,
        existing=_existing(typed),
        retry_from=typed.retry_from,
        deep=typed.recursive,
        checkpoint=_wish(typed),
        verify=typed.verify,
        sign=typed.signature,
        stripe=typed.stripe,
        json_lines=typed.json_lines,
        list_out=typed.list_out,
        stop=stop_of(typed.stop_after, typed.stop_at),
        unjoined=tuple(typed.unjoined),
        words=typed.words,
    )


def _keep(typed: argparse.Namespace) -> Keep:
    wanted = {*_ALL, "special"} if typed.archive else set()
    for text in typed.preserve or ():
        for name in (name.strip() for name in text.split(",")):
            if name not in _WORDS:
                choices = ", ".join(_WORDS)
                raise UsageError(f"--preserve: unknown attribute '{name}'; choose from {choices}")
            wanted.update(_ALL if name == "all" else (name, *_DEMANDED.get(name, ())))
    if not wanted.isdisjoint(_TOGETHER):
        wanted.update(_TOGETHER)
    return Keep(**dict.fromkeys(wanted, True))


def _existing(typed: argparse.Namespace) -> Existing:
    if typed.skip_same and not _keep(typed).timestamps:
        raise UsageError("--skip-same requires -p")
    stays: bool = typed.no_clobber
    return Existing(
        stays=stays,
        newer=typed.update and not stays,
        same=typed.skip_same and not stays,
        force=typed.force and not stays,
        in_place=typed.inplace,
        sync=typed.fsync,
    )


def _wish(typed: argparse.Namespace) -> Wish:
    asked = [
        option
        for option, value in (
            ("--resume", typed.resume),
            ("--restart", typed.restart),
            ("--checkpoint-dir", typed.checkpoint_dir),
            ("--checkpoint-interval", typed.checkpoint_interval),
        )
        if value
    ]
    if typed.no_checkpoint and asked:
        raise UsageError(f"--no-checkpoint cannot be combined with {asked[0]}")
    if typed.resume and typed.restart:
        raise UsageError("--resume cannot be combined with --restart")
    directory = typed.checkpoint_dir
    interval = typed.checkpoint_interval
    return Wish(
        interval_s=60.0 if interval is None else interval_s("--checkpoint-interval", interval),
        directory=None if directory is None else os.path.abspath(os.fsencode(directory)),
        resume=typed.resume,
        restart=typed.restart,
        never=typed.no_checkpoint,
    )


def _limit(option: str, text: str | None, parse: Any) -> float | None:
    if text is None:
        return None
    limit = number(option, text, parse)
    if not 0 < limit < math.inf:
        raise invalid(option, text, "rate must be positive and finite")
    return limit


def copy(sources: Sequence[str | bytes], target: str | bytes, **choices: Any) -> int:
    """Copy as the command does, from a program; returns the exit code.

    `choices` are fields of `Options`. Without `into` or `exact` the target
    follows cp's rules. UsageError for what would be refused before it began
    on this rank.
    """
    options = Options(
        tool="fcp", sources=tuple(map(os.fsencode, sources)), target=os.fsencode(target), **choices
    )
    sys.stdout.flush()
    return run_copy(options)
