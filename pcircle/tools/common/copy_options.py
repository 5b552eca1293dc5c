"""The options of tools that copy trees: their declarations, values and checks.

This module is imported before the command line is parsed.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from pcircle.cli.arguments import OptionalValue
from pcircle.cli.declarations import Option, Section, option, override
from pcircle.cli.options import CommonOptions
from pcircle.core.errors import UsageError
from pcircle.core.units import chunk_bytes
from pcircle.core.units import interval_s as seconds_of

if TYPE_CHECKING:
    from typing_extensions import Self

    from pcircle.fs.attributes.metadata import PreservedAttributes
    from pcircle.fs.data import When
    from pcircle.ops.checkpoint.plan import CheckpointOptions
    from pcircle.ops.copy.entry.overwrite import OverwriteOptions

Links = Literal["all", "operands", "none"]

_WORDS = ("mode", "ownership", "timestamps", "xattr", "acl", "links", "stripe", "all")
_ALL = (*_WORDS[:-1], "flags")
# Mode and ACL must be preserved together. If a file has an ACL, the group bits of its mode are the
# mask of the ACL. If only the mode were preserved, these bits would become permissions of the
# group. Conversely, an ACL includes the mode.
_TOGETHER = ("mode", "acl")
# If an attribute that the user lists by name cannot be preserved, the entry fails.
_DEMANDED = {kind: (f"{kind}_demanded",) for kind in ("xattr", "acl", "stripe")}
_WHEN = ("auto", "always", "never")


def preserved(_: str, texts: Sequence[str]) -> tuple[str, ...]:
    """Return the attributes named in the lists. Raise UsageError if one is unknown."""
    names = [name.strip() for text in texts for name in text.split(",")]
    for name in names:
        if name not in _WORDS:
            choices = ", ".join(_WORDS)
            raise UsageError(f"--preserve: unknown attribute '{name}'; choose from {choices}")
    return tuple(sorted(set(names)))


def attributes_of(names: Sequence[str], *, archive: bool) -> PreservedAttributes:
    """Return the attributes to preserve: those in `names`, or all if `archive` is set."""
    from msgspec.structs import replace

    from pcircle.fs.attributes.metadata import PreservedAttributes

    preserved = {*_ALL, "special"} if archive else set()
    for name in names:
        preserved.update(_ALL if name == "all" else (name, *_DEMANDED.get(name, ())))
    if not preserved.isdisjoint(_TOGETHER):
        preserved.update(_TOGETHER)
    return replace(PreservedAttributes(), **dict.fromkeys(preserved, True))


class _BareList(OptionalValue, argparse._AppendAction):
    """An option with an optional value that may be repeated."""

    __call__ = argparse._AppendAction.__call__


def preserve_option(default: str, bare: str) -> Option:
    """Declare `--preserve`. Its help shows the `default`."""
    return Option(
        "--preserve",
        metavar="LIST",
        action=_BareList,
        bare=bare,
        repeatable=True,
        parse=preserved,
        same_on_resume=True,
        word_list=_WORDS,
        help=f"attributes to keep (default: {default}): mode, ownership, timestamps, xattr, acl, "
        "links, stripe, all",
    )


def _algorithm(name: str, text: str) -> str:
    from pcircle.ops.digest.digests import check_name  # few copies are signed

    try:
        check_name(text)
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from None
    return text


def _algorithms() -> Sequence[str]:
    from pcircle.ops.digest.digests import algorithm_names

    return algorithm_names()


class CopyOptions(CommonOptions, root="SRC", done="copied"):
    """The options of a copy.

    `tool` is the name of the command. If `into` is set, `target` is a directory that will contain
    the copies. If `exact` is set, `target` is the copy itself. `links` selects the symbolic links
    to follow: all, sources ("operands") or none. `unjoined` pairs options with operands that may be
    intended as their values.
    """

    tool: str
    sources: tuple[bytes, ...]
    target: bytes
    into: bool = False
    exact: bool = False
    links: Links = "none"
    archive: bool = False
    preserve: tuple[str, ...] = ()
    unjoined: tuple[tuple[str, str], ...] = ()

    _single = Section()
    retry_from: str | None = option(
        "--retry-from",
        metavar="ERRORLOG",
        takes="file",
        excludes=("files_from",),
        same_on_resume="listed",
        help="copy only the failed entries logged in ERRORLOG",
    )
    verify: bool = option(
        "--verify",
        excludes=("reflink=always",),
        same_on_resume=True,
        help="read each copy back from disk and compare",
    )
    sync: bool = option(
        "--fsync",
        dest="sync",
        action="store_true",
        same_on_resume=True,
        help="flush to disk before reporting success",
    )
    sign: str | None = option(
        "-s",
        "--signature",
        bare="xxh128",
        metavar="ALGORITHM",
        parse=_algorithm,
        words=_algorithms,
        excludes=("reflink=always", "dry", "retry_from"),
        same_on_resume=True,
        help="print the signature of the copy: xxh128 (default), sha256, sha512, blake2b, blake3",
    )

    CHECKPOINTS = Section("Checkpoints")
    resume: bool = option(
        "--resume",
        excludes=("restart",),
        help="resume from the checkpoint, or start if there is none",
    )
    restart: bool = option("--restart", help="discard the checkpoint and start over")
    checkpoint_interval_s: float = option(
        "--checkpoint-interval",
        metavar="T",
        parse=seconds_of,
        otherwise=60.0,
        help="time between checkpoints (default: 60 s)",
    )
    checkpoint_dir: str | None = option(
        "--checkpoint-dir",
        metavar="DIR",
        help="directory for the checkpoint (default: next to the copy)",
    )
    no_checkpoint: bool = option(
        "--no-checkpoint",
        excludes=("resume", "restart", "checkpoint_dir", "checkpoint_interval_s"),
        help="do not write a checkpoint",
    )
    _stop = CommonOptions.STOP

    COPYING = Section()
    chunk_bytes: int | None = option(
        "--chunksize",
        metavar="SIZE",
        parse=chunk_bytes,
        help="chunk size of large files (default: adaptive)",
    )
    reflink: When = option(
        "--reflink",
        bare="always",
        choices=_WHEN,
        default="auto",
        help="clone files if possible (auto), always (also bare), or never",
    )
    sparse: When = option(
        "--sparse",
        choices=_WHEN,
        default="auto",
        same_on_resume=True,
        help="keep holes (auto), turn zeros into holes (always), or fill holes (never)",
    )
    stripe: str | None = option(
        "--stripe",
        metavar="COUNT[:SIZE]",
        words=("keep", "default", "all"),
        same_on_resume=True,
        help="Lustre layout of new files: COUNT, all, keep or default",
    )
    _bandwidth = CommonOptions.BANDWIDTH
    _rate = CommonOptions.OPS_LIMIT
    operations_per_s: float | None = override(help="total limit on metadata operations per second")
    _polite = CommonOptions.POLITE
    polite: float | None = override(excludes=("threads",))
    _noatime = CommonOptions.NOATIME
    list_out: str | None = override(excludes=("verify",))

    @classmethod
    def of(cls, args: argparse.Namespace, **others: Any) -> Self:
        return super().of(args, unjoined=tuple(args.unjoined), **others)

    @cached_property
    def keep(self) -> PreservedAttributes:
        """The attributes to preserve."""
        return self._preserving(self.preserve)

    def _preserving(self, names: Sequence[str]) -> PreservedAttributes:
        """Return the attributes to preserve if `names` are the values of `--preserve`."""
        return attributes_of(names, archive=self.archive)

    def effective(self) -> Self:
        names = self.preserve
        for name in reversed(self.preserve):  # "all" is among the last
            fewer = tuple(other for other in names if other != name)
            if self._preserving(fewer) == self._preserving(names):
                names = fewer
        return super().effective().replace(preserve=names, match=tuple(sorted({*self.match})))

    @cached_property
    def existing(self) -> OverwriteOptions:
        """The treatment of existing entries."""
        from pcircle.ops.copy.entry.overwrite import OverwriteOptions

        return OverwriteOptions()

    @cached_property
    def checkpoint(self) -> CheckpointOptions:
        """The checkpoint options."""
        from pcircle.ops.checkpoint.plan import CheckpointOptions

        directory = self.checkpoint_dir
        return CheckpointOptions(
            interval_s=self.checkpoint_interval_s,
            directory=None if directory is None else os.path.abspath(os.fsencode(directory)),
            resume=self.resume,
            restart=self.restart,
            never=self.no_checkpoint,
        )

    @property
    def prints_null(self) -> bool:
        """Return True: tools that copy accept -0 without a list."""
        return True

    def refuse_conflicts(self) -> None:
        super().refuse_conflicts()
        if self.reflink == "always" and self.sparse != "auto":
            raise UsageError("--reflink=always requires --sparse=auto")
        if self.list_out is not None and self.list_out in (self.json_lines, self.files_from):
            raise UsageError(f"--list-out: '{self.list_out}' is used by another option")
        if self.attribute_filter.by_time == "atime" and self.resume:
            raise UsageError(
                "--resume cannot be combined with --by-time=atime: the copy has changed the access "
                "times that the filter compares; to start over, --restart"
            )


def joined(arguments: Sequence[str]) -> Sequence[str]:
    """Return the arguments with `--stripe` joined to its value, because -1 looks like an option."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    if "--stripe" not in arguments[: end - 1]:
        return arguments
    at = arguments.index("--stripe")
    return [*arguments[:at], "=".join(arguments[at : at + 2]), *arguments[at + 2 :]]
