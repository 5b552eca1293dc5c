"""`--snapshot`: each run makes a new tree next to the earlier ones, linked to the last.

B is then a directory of snapshots. A new snapshot is made under a name that begins with a dot. An
interrupted run leaves it, and the next run continues it under any name. A complete snapshot is
renamed, then the link `latest` is moved, and finally old snapshots are removed (`--keep`). So every
named snapshot is complete, and none is removed before a new one exists.

`--keep` counts snapshots whose names are dates, because a tree has the times of its source.
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
    """A rule that keeps the newest snapshot of each of the last `count` periods; "" keeps each."""

    count: int
    period: str


class Snapshot(msgspec.Struct, frozen=True):
    """A new snapshot: its name in the directory of all snapshots, and the rules of retention."""

    directory: bytes
    name: bytes
    rules: tuple[RetentionRule, ...] = ()

    @property
    def unfinished(self) -> bytes:
        """Return the path of the incomplete snapshot."""
        return os.path.join(self.directory, UNFINISHED)

    @property
    def path(self) -> bytes:
        """Return the path of the complete snapshot."""
        return os.path.join(self.directory, self.name)


def wanted(name: str, keep: str | None, directory: bytes) -> Snapshot:
    """Return the snapshot of `--snapshot=NAME` and `--keep=LIST`; an empty name is the time.

    UsageError.
    """
    known = os.fsencode(name) or time.strftime("%Y-%m-%dT%H%M%S").encode()
    if b"/" in known or known.startswith(b".") or known == LATEST:
        text = "is no name for a snapshot: no '/', no dot in front, and not 'latest'"
        raise UsageError(f"--snapshot: '{show(known)}' {text}")
    return Snapshot(directory, known, () if keep is None else rules_of(keep))


def rules_of(text: str) -> tuple[RetentionRule, ...]:
    """Return the rules of `--keep`, such as `7d,4w,12m`. UsageError."""
    rules = []
    for word in text.split(","):
        match = _RULE.fullmatch(word.strip())
        if match is None or not int(match[1]):
            hint = "expected numbers of hours, days, weeks, months or years, as in 7d,4w,12m"
            raise UsageError(f"--keep: '{word}': {hint}")
        rules.append(RetentionRule(int(match[1]), match[2]))
    return tuple(rules)


def date_of(name: bytes) -> datetime | None:
    """Return the date that is a snapshot's name, or None."""
    match = _DATE.fullmatch(name)
    if match is None:
        return None
    try:
        year, month, day, hour, minute, second = (int(part or 0) for part in match.groups())
        return datetime(year, month, day, hour, minute, second)
    except ValueError:
        return None


def expired(names: Iterable[bytes], rules: tuple[RetentionRule, ...], made: bytes) -> list[bytes]:
    """Return the snapshots that no rule keeps, oldest first; never `made`, nor other names."""
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
    """Return the existing snapshots. OSError."""
    with suppress(FileNotFoundError), os.scandir(directory) as entries:
        return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    return []  # a dry run makes none


def latest(directory: bytes) -> bytes | None:
    """Return the target of the link `latest`, the last complete snapshot."""
    try:
        name = os.readlink(os.path.join(directory, LATEST))
    except OSError:
        return None
    path = os.path.join(directory, name)
    if b"/" in name or name.startswith(b".") or os.path.islink(path) or not os.path.isdir(path):
        return None
    return os.path.abspath(path)


def begin(snapshot: Snapshot, *, make: bool) -> None:
    """Refuse an existing snapshot; `make` the directory of all snapshots. UsageError."""
    if os.path.lexists(snapshot.path):
        raise UsageError(f"'{show(snapshot.path)}' exists: a snapshot is never changed")
    link = os.path.join(snapshot.directory, LATEST)
    if os.path.lexists(link) and not os.path.islink(link):
        raise UsageError(f"'{show(link)}' is no symbolic link")
    if make:
        try:
            with suppress(FileExistsError):
                os.mkdir(snapshot.directory)
        except OSError as error:
            text = f"cannot create directory '{show(snapshot.directory)}': {error.strerror}"
            raise UsageError(text) from None


def complete(snapshot: Snapshot, *, sync: bool) -> None:
    """Rename the snapshot, and point `latest` to it. OSError."""
    fd = os.open(snapshot.directory, OPEN_DIRECTORY_FOLLOW)
    try:
        try:
            rename_to_free(UNFINISHED, snapshot.name, fd)
        except OSError as error:
            if error.errno not in NO_SUCH_RENAME:
                raise
            os.rename(UNFINISHED, snapshot.name, src_dir_fd=fd, dst_dir_fd=fd)  # or an empty one
        written = b".latest.%d" % os.getpid()
        with suppress(FileNotFoundError):
            os.unlink(written, dir_fd=fd)
        os.symlink(snapshot.name, written, dir_fd=fd)
        os.rename(written, LATEST, src_dir_fd=fd, dst_dir_fd=fd)
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)
