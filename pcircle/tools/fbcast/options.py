"""The options of fbcast: their declarations, values and checks.

This module is imported before the command line is parsed.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pcircle.cli.declarations import Section, option, override, taken
from pcircle.cli.options import CommonOptions
from pcircle.core.errors import UsageError
from pcircle.core.units import interval_s

if TYPE_CHECKING:
    from pcircle.tools.fbcast.messages import Verb


def _directory(_: str, text: str) -> bytes:
    if not text:
        raise UsageError("empty file name")
    return os.path.abspath(os.fsencode(text))


class BroadcastOptions(CommonOptions):
    """The options of fbcast. `target` is absolute."""

    sources: tuple[bytes, ...]
    target: bytes

    _actions = Section("Actions")
    check: bool = option(
        "--check",
        excludes=("remove", "update", "force", "keep", "partial", "sync", "bytes_per_s"),
        help="compare all nodes with SRC by signature",
    )
    remove: bool = option(
        "--remove",
        excludes=("update", "force", "keep", "sync", "bytes_per_s"),
        help="remove entries named like SRC from DST on all nodes",
    )
    update: bool = option("-u", "--update", help="update existing trees, sending only what differs")
    force: bool = option("-f", "--force", help="replace existing directories")
    keep: bool = option(
        "-n",
        "--no-clobber",
        excludes=("update", "force"),
        help="refuse to run if a name exists on any node",
    )
    partial: bool = option("--partial", help="continue without nodes that fail")

    _safety = Section("Safety")
    sync: bool = option("--fsync", help="flush to disk before publishing")
    record_directory: bytes | None = option(
        "--record-dir",
        metavar="DIR",
        parse=_directory,
        help="directory for records (default: ~/.local/state/fbcast)",
    )
    patience_s: float = option(
        "--timeout",
        metavar="T",
        default="60",
        parse=interval_s,
        help="how long a node may take to respond (default: 60 s)",
    )

    _performance = Section("Performance")
    _limits = taken("jobs", "transport", "bytes_per_s")
    jobs: int | None = override(help="processes, per rank under MPI (default: cores, up to 8)")
    bytes_per_s: float | None = override(help="limit on bytes per second for each node")

    _output = Section("Output")
    _shared = taken("quiet", "verbose", "stats", "json", "syslog", "version")
    verbose: int = override(action="store_true", default=False, help="report on each node")
    stats: int = override(help="print a table of the nodes: bytes, time and rate")

    @property
    def verb(self) -> Verb:
        """The requested action."""
        return "check" if self.check else "remove" if self.remove else "copy"

    @property
    def records(self) -> bytes:
        """The directory for the records of decisions."""
        if self.record_directory is not None:
            return self.record_directory
        state = os.environ.get("XDG_STATE_HOME") or os.path.join(
            os.path.expanduser("~"), ".local", "state"
        )
        return os.path.abspath(os.path.join(os.fsencode(state), b"fbcast"))
