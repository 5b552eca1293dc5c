"""The program of fcp, which interprets the options and runs the copy."""

from __future__ import annotations

import argparse
import os

from pcircle.core.errors import UsageError
from pcircle.core.units import chunk_bytes, parse_number, parse_size
from pcircle.ops.copy.entry.overwrite import OverwriteOptions
from pcircle.tools.common.copy_arguments import checkpoint_options_of, keep_of, limit_of
from pcircle.tools.common.copy_program import CopyOptions, run_copy


def copy_typed(args: argparse.Namespace) -> int:
    """Run a parsed command line and return the exit code; raise UsageError if it is invalid."""
    return run_copy(_options(args))


def _options(args: argparse.Namespace) -> CopyOptions:
    operands = [os.fsencode(word) for word in args.operands]
    into = args.target_directory is not None
    if into and args.no_target_directory:
        raise UsageError("-t cannot be combined with -T")
    target = os.fsencode(args.target_directory) if into else None
    if not operands:
        raise UsageError("missing operands SRC and DST")
    if target is None:
        if len(operands) == 1:
            raise UsageError(f"missing destination after '{args.operands[0]}'")
        target = operands.pop()
    if args.no_target_directory and len(operands) > 1:
        raise UsageError(f"-T takes one SRC and one DST: extra operand '{args.operands[2]}'")
    if not target or not all(operands):
        raise UsageError("empty file name")
    return CopyOptions.of(
        args,
        tool="fcp",
        sources=tuple(operands),
        target=target,
        into=into,
        exact=args.no_target_directory,
        keep=keep_of(args.preserve, archive=args.archive),
        chunk_bytes=None if args.chunksize is None else chunk_bytes("--chunksize", args.chunksize),
        dry=args.dry_run,
        links=args.links,
        bytes_per_s=limit_of("--bwlimit", args.bwlimit, parse_size),
        operations_per_s=limit_of("--ops-limit", args.ops_limit, parse_number),
        reflink=args.reflink,
        sparse=args.sparse,
        existing=_existing(args),
        retry_from=args.retry_from,
        deep=args.recursive,
        checkpoint=checkpoint_options_of(args),
        verify=args.verify,
        sign=args.signature,
        stripe=args.stripe,
        unjoined=tuple(args.unjoined),
    )


def _existing(args: argparse.Namespace) -> OverwriteOptions:
    if args.skip_same and not keep_of(args.preserve, archive=args.archive).timestamps:
        raise UsageError("--skip-same requires -p")
    stays: bool = args.no_clobber
    return OverwriteOptions(
        stays=stays,
        newer=args.update and not stays,
        same=args.skip_same and not stays,
        force=args.force and not stays,
        in_place=args.inplace,
        sync=args.fsync,
    )
