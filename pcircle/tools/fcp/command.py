"""What the options of fcp mean, and running a copy with them."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

from pcircle.cli.options import common
from pcircle.cli.times import stop_of
from pcircle.core.errors import UsageError
from pcircle.core.units import parse_size
from pcircle.core.values import (
    chunk_bytes,
    parse_number,
)
from pcircle.ops.copy.entry.overwrite import OverwriteOptions
from pcircle.tools.common.copy_options import keep_of, limit_of, wish_of
from pcircle.tools.common.copy_program import Options, run_copy


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
        keep=keep_of(typed.preserve, archive=typed.archive),
        chunk_bytes=None if typed.chunksize is None else chunk_bytes(typed.chunksize),
        dry=typed.dry_run,
        links=typed.links,
        bytes_per_s=limit_of("--bwlimit", typed.bwlimit, parse_size),
        operations_per_s=limit_of("--ops-limit", typed.ops_limit, parse_number),
        reflink=typed.reflink,
        sparse=typed.sparse,
        existing=_existing(typed),
        retry_from=typed.retry_from,
        deep=typed.recursive,
        checkpoint=wish_of(typed),
        verify=typed.verify,
        sign=typed.signature,
        stripe=typed.stripe,
        json_lines=typed.json_lines,
        list_out=typed.list_out,
        stop=stop_of(typed.stop_after, typed.stop_at),
        unjoined=tuple(typed.unjoined),
        words=typed.words,
    )


def _existing(typed: argparse.Namespace) -> OverwriteOptions:
    if typed.skip_same and not keep_of(typed.preserve, archive=typed.archive).timestamps:
        raise UsageError("--skip-same requires -p")
    stays: bool = typed.no_clobber
    return OverwriteOptions(
        stays=stays,
        newer=typed.update and not stays,
        same=typed.skip_same and not stays,
        force=typed.force and not stays,
        in_place=typed.inplace,
        sync=typed.fsync,
    )


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
