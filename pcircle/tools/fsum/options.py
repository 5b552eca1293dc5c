"""The options of fsum: their declarations, values and checks.

This module is imported before the command line is parsed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from pcircle.cli.declarations import Section, option, override
from pcircle.cli.options import CommonOptions
from pcircle.core.errors import UsageError
from pcircle.core.units import chunk_bytes

if TYPE_CHECKING:
    from pcircle.tools.fsum.plan import Against


def _algorithms() -> Iterable[str]:
    from pcircle.ops.digest import algorithm_names, checksums

    return dict.fromkeys((*checksums.NAMES, *algorithm_names()))  # each name once


class SumOptions(CommonOptions):
    """The options of fsum. Without PATHs, the path that the manifest `against` records is used."""

    paths: tuple[bytes, ...]

    _signature = Section("Signature")
    algorithm: str | None = option(
        "-a",
        "--algorithm",
        metavar="NAME",
        words=_algorithms,
        help="digest: xxh128 (default), sha256, sha512, blake2b, blake3",
    )
    format: Literal["pcsig", "coreutils"] = option(
        "--format",
        choices=("pcsig", "coreutils"),
        default="pcsig",
        help="pcsig, or coreutils: one line per file, like sha256sum",
    )
    output: str | None = option(
        "-o",
        "--output",
        metavar="MANIFEST",
        excludes=("check", "rot"),
        help="also write a manifest of all entries",
    )
    checksums: str | None = option(
        "--checksums",
        metavar="NAME",
        requires=("output",),
        excludes=("check", "rot", "update"),
        help="with -o, also record the checksums that --export needs",
    )
    force: bool = option("--force", requires=("output",), help="with -o, replace an existing file")
    _one = CommonOptions.ONE_FILE_SYSTEM

    _manifests = Section("Manifests", "ROOT defaults to the path recorded in the manifest.")
    check: str | None = option(
        "-c",
        "--check",
        metavar="MANIFEST",
        excludes=("update", "rot"),
        help="compare a tree with a manifest or checksum list",
    )
    quick: bool = option(
        "--quick", requires=("check",), help="with --check, skip files of unchanged size and time"
    )
    strict: bool = option(
        "--strict",
        requires=("check",),
        help="accepted as in sha256sum; malformed lines always fail",
    )
    update: str | None = option(
        "--update",
        metavar="MANIFEST",
        excludes=("rot",),
        help="update MANIFEST, reading only changed files",
    )
    rot: str | None = option(
        "--rot", metavar="MANIFEST", help="reread unmodified files to find silent corruption"
    )
    diff: tuple[str, str] | None = option(
        "--diff",
        nargs=2,
        metavar=("OLD", "NEW"),
        takes="file",
        help="compare two manifests without reading files",
    )

    export: str | None = option(
        "--export",
        metavar="MANIFEST",
        excludes=("json",),
        help="print a checksum list from a manifest, without reading files",
    )

    _filters = CommonOptions.FILTERS
    _recursive = CommonOptions.RECURSIVE
    recursive: bool = override(requires=("files_from",))
    _safety = CommonOptions.SAFETY

    _performance = CommonOptions.PERFORMANCE
    _op_timeout = CommonOptions.OP_TIMEOUT
    _noatime = CommonOptions.NOATIME
    chunk_bytes: int | None = option(
        "--chunksize",
        metavar="SIZE",
        parse=chunk_bytes,
        help="chunk size of large files (default: adaptive)",
    )
    _output = CommonOptions.OUTPUT
    verbose: int = override(help="list the entries that are read, and print a summary")

    @property
    def whole(self) -> bool:
        """Return whether the digest of each file is printed instead of one signature."""
        return self.format == "coreutils"

    @property
    def against(self) -> bytes | None:
        """Return the manifest or checksum list to compare with."""
        given = (name for name in (self.check, self.update, self.rot) if name is not None)
        return next(map(os.fsencode, given), None)

    @property
    def mode(self) -> Against:
        """Return how files are compared with `against`."""
        if self.update is not None:
            return "update"
        return "rot" if self.rot is not None else "quick" if self.quick else "check"

    @property
    def written(self) -> bytes | None:
        """Return the manifest to write; an update replaces the old one by default."""
        name = self.output if self.update is None else self.output or self.update
        return None if name is None else os.fsencode(name)

    @property
    def prints_null(self) -> bool:
        return self.check is not None

    def refuse_conflicts(self) -> None:
        super().refuse_conflicts()
        if not self.paths and self.against is None:
            raise UsageError("missing operand PATH")
        if len(self.paths) > 1 and (self.written or self.against):
            given = "check" if self.mode == "quick" else self.mode
            used = "-o takes one PATH" if self.output else f"--{given} takes one ROOT"
            extra = os.fsdecode(self.paths[1])
            raise UsageError(f"{used}: extra operand '{extra}'")
        uses_manifest = bool(self.written or self.against)
        if self.whole and uses_manifest:
            hint = "; to record checksums in a manifest, use --checksums" if self.output else ""
            raise UsageError(f"--format=coreutils cannot be combined with manifests{hint}")
        if uses_manifest and self.selects_by_attribute:
            text = "manifests cannot be combined with filters by time, size, owner or kind"
            raise UsageError(text)
        if self.whole and self.chunk_bytes is not None:
            raise UsageError(WHOLE_CHUNKS)


WHOLE_CHUNKS = "--chunksize cannot be combined with digests of whole files"
