"""`--snapshot`: each run creates a new tree next to the earlier ones, hard-linked to the last one.

B is then a directory of snapshots. A new snapshot is created under a name that begins with a dot.
If the run is interrupted, this tree remains, and the next run continues it, whatever name it
requests. A complete snapshot is renamed, then the symbolic link `latest` is updated, and finally
old snapshots are removed (`--keep`). As a result, every named snapshot is complete (unless
`--ignore-errors` was given), and none is removed before a new one exists.

`--keep` counts only snapshots whose names are dates, because the times of a snapshot are those of
its source.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime

import msgspec

from pcircle.core.encoding import show
from pcircle.core.errors import UsageError
from pcircle.fs.directories import closing_fd
from pcircle.fs.naming import NO_SUCH_RENAME, rename_to_free
from pcircle.fs.open_flags import OPEN_DIRECTORY_FOLLOW

UNFINISHED = b".fmirror-snapshot"
LATEST = b"latest"

_DATE = re.compile(
    rb"(\d{4})-?(\d\d)-?(\d\d)(?:[T_ -]?(\d\d)[:.-]?(\d\d)(?:[:.-]?(\d\d))?)?", re.ASCII
)
_RULE = re.compile(r"(\d+)([hdwmy]?)", re.ASCII)
_PERIODS = {"h": "%Y%m%d%H", "d": "%Y%m%d", "w": "%G%V", "m": "%Y%m", "y": "%Y"}


class RetentionRule(msgspec.Struct, frozen=True):
    """A rule that keeps the newest snapshot of each of the last `count` periods that have any.

    If `period` is empty, it keeps the last `count` snapshots.
    """

    count: int
    period: str


class Snapshot(msgspec.Struct, frozen=True):
    """A new snapshot: the directory of all snapshots, its name, and the retention rules."""

    directory: bytes
    name: bytes
    rules: tuple[RetentionRule, ...] = ()

    @property
    def unfinished(self) -> bytes:
        """Return the path of the snapshot while it is incomplete."""
        return os.path.join(self.directory, UNFINISHED)

    @property
    def path(self) -> bytes:
        """Return the path of the snapshot once it is complete."""
        return os.path.join(self.directory, self.name)


def snapshot_of(name: str, keep: str | None, directory: bytes) -> Snapshot:
    """Return the snapshot that `--snapshot=NAME` and `--keep=LIST` specify.

    If the name is empty, the snapshot is named after the current time. Raise UsageError if an
    option is invalid.
    """
    known = os.fsencode(name) or time.strftime("%Y-%m-%dT%H%M%S").encode()
    if b"/" in known or known.startswith(b".") or known == LATEST:
        text = "is not a snapshot name: it must not contain '/', begin with a dot or be 'latest'"
        raise UsageError(f"--snapshot: '{show(known)}' {text}")
    return Snapshot(directory, known, () if keep is None else rules_of(keep))


def rules_of(text: str) -> tuple[RetentionRule, ...]:
    """Parse the rules of `--keep`, such as `7d,4w,12m`. Raise UsageError if they are invalid."""
    rules = []
    for word in text.split(","):
        match = _RULE.fullmatch(word.strip())
        if match is None or not int(match[1]):
            hint = "expected numbers of hours, days, weeks, months or years, such as 7d,4w,12m"
            raise UsageError(f"--keep: '{word}': {hint}")
        rules.append(RetentionRule(int(match[1]), match[2]))
    return tuple(rules)


def date_of(name: bytes) -> datetime | None:
    """Return the date that a snapshot's name represents, or None if it is not a date."""
    match = _DATE.fullmatch(name)
    if match is None:
        return None
    try:
        year, month, day, hour, minute, second = (int(part or 0) for part in match.groups())
        return datetime(year, month, day, hour, minute, second)
    except ValueError:
        return None


def expired(names: Iterable[bytes], rules: tuple[RetentionRule, ...], made: bytes) -> list[bytes]:
    """Return the snapshots that no rule keeps, oldest first.

    The new snapshot `made` and names that are not dates are always kept.
    """
    if not rules:
        return []
    dated = sorted((date, name) for name in names if (date := date_of(name)) is not None)
    retained = {made}
    for rule in rules:
        periods: set[str] = set()
        for date, name in reversed(dated):
            period = date.strftime(_PERIODS[rule.period]) if rule.period else os.fsdecode(name)
            if period not in periods and len(periods) < rule.count:
                periods.add(period)
                retained.add(name)
    return [name for _, name in dated if name not in retained]


def names_in(directory: bytes) -> list[bytes]:
    """Return the names of the subdirectories. Raise OSError if they cannot be listed."""
    with suppress(FileNotFoundError), os.scandir(directory) as entries:
        return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    return []  # a dry run does not create the directory


def latest(directory: bytes) -> bytes | None:
    """Return the path of the snapshot to which the link `latest` points, or None."""
    try:
        name = os.readlink(os.path.join(directory, LATEST))
    except OSError:
        return None
    path = os.path.join(directory, name)
    if b"/" in name or name.startswith(b".") or os.path.islink(path) or not os.path.isdir(path):
        return None
    return os.path.abspath(path)


def begin(snapshot: Snapshot, *, make: bool) -> None:
    """Raise UsageError if the snapshot exists or its directory cannot be used.

    If `make` is set, create the directory if necessary.
    """
    if os.path.lexists(snapshot.path):
        raise UsageError(f"'{show(snapshot.path)}' exists, and a snapshot is never changed")
    link = os.path.join(snapshot.directory, LATEST)
    if os.path.lexists(link) and not os.path.islink(link):
        raise UsageError(f"'{show(link)}' is not a symbolic link")
    if make:
        try:
            with suppress(FileExistsError):
                os.mkdir(snapshot.directory)
        except OSError as error:
            text = f"cannot create directory '{show(snapshot.directory)}': {error.strerror}"
            raise UsageError(text) from None


def complete(snapshot: Snapshot, *, sync: bool) -> None:
    """Give the snapshot its final name, and point `latest` to it. Raise OSError on failure."""
    with closing_fd(os.open(snapshot.directory, OPEN_DIRECTORY_FOLLOW)) as fd:
        try:
            rename_to_free(UNFINISHED, snapshot.name, fd)
        except OSError as error:
            if error.errno not in NO_SUCH_RENAME:
                raise
            # This may replace a new, empty directory of the same name, but nothing else.
            os.rename(UNFINISHED, snapshot.name, src_dir_fd=fd, dst_dir_fd=fd)
        written = b".latest.%d" % os.getpid()
        with suppress(FileNotFoundError):
            os.unlink(written, dir_fd=fd)
        os.symlink(snapshot.name, written, dir_fd=fd)
        os.rename(written, LATEST, src_dir_fd=fd, dst_dir_fd=fd)
        if sync:
            os.fsync(fd)
