"""The sums that a rank collects during the walk, and turns into its profile at the end.

The walk passes the files of a directory as columns (`pcircle.fs.stats`). For speed, sums, size
histograms and lists of the largest files are computed from entire columns. Sums that only some
reports need are computed only for these reports (`facets`).

Hard-linked files are first added like all files. The bytes that must count only once for all names
are then subtracted, and the home of the inode adds them for the first name.
"""

from __future__ import annotations

import stat
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter

import msgspec

from pcircle.core.units import DAY_S
from pcircle.fs.directories import join_path
from pcircle.fs.registry import FirstNames
from pcircle.fs.stats import Stats
from pcircle.tools.fprof.profile.groups import Claim
from pcircle.tools.fprof.profile.model import (
    DEEPEST,
    DIRECTORY_LISTS,
    FILE_LISTS,
    KINDS,
    LONGEST_EXTENSION,
    MAX_EXTENSIONS,
    MAX_OWNERS,
    Best,
    DirectoryRow,
    FileRow,
    K,
    Profile,
    Sums,
    add_to,
    by_number,
    by_sense,
)
from pcircle.tools.fprof.profile.sizes import SizeCounts, bin_of, octave_of

FACETS = ("age", "blocks", "dirsize", "depth", "ext", "group", "owner", "top", "tree")
"""The sums that are computed only on request."""

SECTOR_BYTES = 512
SPECIALS = {
    stat.S_IFIFO: "pipes",
    stat.S_IFSOCK: "sockets",
    stat.S_IFCHR: "character devices",
    stat.S_IFBLK: "block devices",
}
LONGEST_PATH_BYTES = 1024  # in the lists of thousands of directories that form the tree
_LONGEST_LISTED_BYTES = 4096  # in top lists
_MAX_DAYS = 16_384
_MAX_AT_HAND = 100_000  # inodes in memory, about 20 MB
_FIRST_DAY, _LAST_DAY = -25_567, 73_049  # the first day of 1900 and a day of 2170


Tell = Callable[..., None]
"""A callback for each file with a finding.

Its arguments are the name of the list, the root, the directory's path, the file's name, and the
fields of the finding.
"""


class FileBatch:
    """Files in one directory: their names, and columns in the same order.

    `places` are the rows of the files in the table of look-ups, or None if all rows are files. If
    the files are in several subdirectories, `holders` names these, and `ends` contains the number
    of files up to the end of each subdirectory.
    """

    root: int
    path: bytes
    depth: int

    def __init__(
        self,
        stats: Stats,
        names: Sequence[bytes],
        where: Where,
        places: Sequence[int] | None = None,
        holders: Sequence[bytes] = (),
        ends: Sequence[int] = (),
    ) -> None:
        self.stats = stats
        self.holders: Sequence[bytes] = holders
        self.ends: Sequence[int] = ends
        self.names = names
        self.places = places
        self.root, self.path, self.depth = where
        self.sizes: list[int] = self.column("size")
        self.blocks: list[int] = self.column("blocks")

    def column(self, name: str) -> list[int]:
        """Return a column, reduced to these files."""
        if self.places is None:
            return self.stats.column(name, 0, len(self.names))
        column = self.stats.column(name, 0, self.places[-1] + 1)
        return [column[place] for place in self.places]

    def at(self, place: int) -> tuple[int, bytes, bytes]:
        """Return the location of a file: its root, the path of its directory, and its name."""
        return self.root, self.path, self.names[place]

    def path_at(self, place: int) -> bytes:
        """Return the path of a file."""
        name = self.names[place]
        if self.holders:
            name = self.holders[bisect_right(self.ends, place)] + b"/" + name
        return join_path(self.path, name)

    def have_single_names(self) -> bool:
        """Return whether no file is hard-linked."""
        if self.places is None:
            return self.stats.has_single_names(0, len(self.names))
        return max(self.column("links")) <= 1


Where = tuple[int, bytes, int]
"""A directory: its root, path and depth."""


class Collector:
    """The sums of a worker.

    `edges` are the edges of a histogram whose counts must be exact. The workers of a rank share
    `inodes`.
    """

    def __init__(
        self,
        facets: Iterable[str],
        top: int,
        edges: tuple[int, ...] = (),
        inodes: FirstNames | None = None,
    ) -> None:
        self.profile: Profile = Profile(
            taken_s=int(time.time()), facets=tuple(sorted(facets)), roots=()
        )
        self.profile.top = top
        self.inodes: FirstNames = FirstNames(_MAX_AT_HAND) if inodes is None else inodes
        self._max_days = _MAX_DAYS
        self._facets = frozenset(facets)
        self._sizes = SizeCounts(edges, units="blocks" in self._facets)
        self._kinds = {kind: [0, 0, 0] for kind in KINDS}
        self._owners: Sums[int] = Sums(MAX_OWNERS, by_number)
        self._groups: Sums[int] = Sums(MAX_OWNERS, by_number)
        self._extensions: Sums[str] = Sums(MAX_EXTENSIONS, by_sense)
        self.profile.edges = edges
        self._files = {
            name: Best[FileRow](top if "top" in self._facets else 0, order)
            for name, order in FILE_LISTS.items()
        }
        self._directories = {
            name: Best[DirectoryRow](self._length(name, most, top), order)
            for name, (order, most) in DIRECTORY_LISTS.items()
        }
        # The lists that may have rows, each with the attribute by which the rows are ranked.
        numbers = {"wide": "own_entries", "heavy": "own_bytes"}
        numbers |= {"weights": "size_bytes", "crowds": "entries"}
        self._ranked = [
            (name, best, attrgetter(numbers[name]))
            for name, best in self._directories.items()
            if best.floor > 0
        ]
        optional = {
            "owner": lambda files: self._by_key(self._owners, files.column("uid"), files),
            "group": lambda files: self._by_key(self._groups, files.column("gid"), files),
            "age": self._by_age,
            "ext": lambda files: self._by_key(
                self._extensions, list(map(extension_of, files.names)), files
            ),
            "depth": self._by_depth,
            "top": self._by_rank,
        }
        self._more = [add for name, add in optional.items() if name in self._facets]

    def _length(self, name: str, most: int | None, top: int) -> int:
        """Return the length of a list of directories; every report names the widest directory."""
        if name == "wide":
            return top
        if name == "heavy":
            return top if "top" in self._facets else 0
        return (most or 0) if "tree" in self._facets else 0

    # ---- files -----------------------------------------------------------------

    def files(self, files: FileBatch) -> tuple[int, list[Claim]]:
        """Add a block of files.

        Return the bytes that count for the directory, and the claims of hard-linked files.
        """
        sizes = files.sizes
        total = sum(sizes)
        self._sizes.add(sizes)
        add_to(self._kinds["file"], (len(sizes), total, SECTOR_BYTES * sum(files.blocks)))
        for add in self._more:
            add(files)
        if files.have_single_names():
            return total, []
        links = files.column("links")
        claims = list(self._claims(files, links))
        self.profile.names[0] += len(claims)
        for claim in claims:
            self.once(claim, -1)
            total -= claim.size_bytes - claim.size_bytes // claim.links
        return total, claims

    def _claims(self, files: FileBatch, links: list[int]) -> Iterable[Claim]:
        """Yield the claim of each hard-linked file, and reduce the sums that count by name."""
        device, inode, uid, gid, mtime = map(
            files.column, ("device", "inode", "uid", "gid", "mtime")
        )
        for place, number in enumerate(links):
            if number > 1:
                size, allocated = files.sizes[place], files.blocks[place] * SECTOR_BYTES
                inner = (number, size, allocated, uid[place], gid[place], mtime[place])
                yield Claim(device[place], inode[place], *inner)
                if "ext" in self._facets or "depth" in self._facets:
                    self._share(files, files.names[place], size, allocated, number)

    def _share(self, files: FileBatch, name: bytes, size: int, allocated: int, links: int) -> None:
        """Reduce the bytes counted under this name to one part in `links`."""
        back = (0, size // links - size, allocated // links - allocated)
        if "ext" in self._facets:
            self._extensions.add(extension_of(name), *back)
        if "depth" in self._facets:
            self._tally(self.profile.depths, min(files.depth + 1, DEEPEST), *back)

    def once(self, claim: Claim, sign: int) -> None:
        """Add or subtract the bytes that count only once for all names of a file."""
        size, allocated = sign * claim.size_bytes, sign * claim.allocated_bytes
        add_to(self._kinds["file"], (0, size, allocated))
        self._sizes.once(claim.size_bytes, sign)
        if "owner" in self._facets:
            self._owners.add(claim.uid, 0, size, allocated)
        if "group" in self._facets:
            self._groups.add(claim.gid, 0, size, allocated)
        if "age" in self._facets:
            day = claim.modified_s // DAY_S
            self._tally(self.profile.ages, day, 0, size, allocated)
            place = day // 7 * 64 + octave_of(claim.size_bytes)
            self._tally(self.profile.age_sizes, place, 0, size, 0)

    def claim(self, claim: Claim) -> None:
        """Register a name of a hard-linked file; its home calls this method."""
        if self.inodes.is_first((claim.volume, claim.inode), claim.links):
            self.profile.names[1] += 1
            self.once(claim, 1)

    # ---- sums of files for some reports ----------------------------------------

    @staticmethod
    def _by_key(table: Sums[K], keys: Sequence[K], files: FileBatch) -> None:
        """Add files to the tallies of their keys."""
        if len(set(keys)) == 1:
            table.add(keys[0], len(keys), sum(files.sizes), SECTOR_BYTES * sum(files.blocks))
            return
        for key, size, blocks in zip(keys, files.sizes, files.blocks, strict=True):
            table.add(key, 1, size, SECTOR_BYTES * blocks)

    def _by_age(self, files: FileBatch) -> None:
        if len(self.profile.ages) > self._max_days:
            self._bound_ages()
        ages, age_sizes = self.profile.ages, self.profile.age_sizes
        for modified_s, size, blocks in zip(
            files.column("mtime"), files.sizes, files.blocks, strict=True
        ):
            day = modified_s // DAY_S
            tally = ages.get(day)
            if tally is None:
                ages[day] = [1, size, blocks * SECTOR_BYTES]
            else:
                tally[0] += 1
                tally[1] += size
                tally[2] += blocks * SECTOR_BYTES
            # An inlined copy of `octave_of`.
            place = day // 7 * 64 + (min(63, (size - 1).bit_length() + 1) if size else 0)
            tally = age_sizes.get(place)
            if tally is None:
                age_sizes[place] = [1, size, 0]
            else:
                tally[0] += 1
                tally[1] += size

    def _bound_ages(self) -> None:
        """Bound the number of days, because a hostile tree may use any number of timestamps."""
        profile = self.profile
        profile.ages = _bounded(profile.ages, 1, _FIRST_DAY, _LAST_DAY)
        first, last = _FIRST_DAY // 7, _LAST_DAY // 7
        profile.age_sizes = _bounded(profile.age_sizes, 64, first, last)
        self._max_days = 2 * max(_MAX_DAYS, len(profile.ages))

    def _by_depth(self, files: FileBatch) -> None:
        number, total = len(files.sizes), sum(files.sizes)
        allocated = SECTOR_BYTES * sum(files.blocks)
        self._tally(self.profile.depths, min(files.depth + 1, DEEPEST), number, total, allocated)

    def _by_rank(self, files: FileBatch) -> None:
        """Add the largest, the newest and the oldest files."""
        modified = files.column("mtime")
        for name, values, sign in (
            ("largest", files.sizes, -1),
            ("newest", modified, -1),
            ("oldest", modified, 1),
        ):
            best = self._files[name]
            extreme = max(values) if sign < 0 else min(values)
            if sign * extreme > best.floor:
                continue
            for place, value in enumerate(values):
                if sign * value <= best.floor:
                    best.add(FileRow(value, files.root, _listed(files.path_at(place))))

    @staticmethod
    def _tally(
        table: dict[int, list[int]], key: int, number: int, size: int, allocated: int
    ) -> None:
        add_to(table.setdefault(key, [0, 0, 0]), (number, size, allocated))

    # ---- other entries ---------------------------------------------------------

    def add_others(self, kind: str, sizes: Sequence[int], blocks: Sequence[int]) -> None:
        """Add links, special files or directories."""
        add_to(self._kinds[kind], (len(sizes), sum(sizes), SECTOR_BYTES * sum(blocks)))

    def specials(self, modes: Iterable[int]) -> None:
        """Count special files by kind; `add_others` adds their bytes."""
        counted = self.profile.specials
        for mode in modes:
            kind = SPECIALS.get(stat.S_IFMT(mode), "other")
            counted[kind] = [counted.get(kind, [0])[0] + 1]

    def directories(
        self,
        root: int,
        prefix: bytes,
        depth: int,
        names: Sequence[bytes],
        counts: Sequence[int],
        sizes: Sequence[int],
    ) -> None:
        """Add several directories that contain only files, given the files and bytes in each.

        `prefix` and a name form the path of a directory. To save time, a row is created only for a
        directory that may enter a list.
        """
        if "dirsize" in self._facets:
            for number, times in Counter(counts).items():
                self._add_directory_size(number, times)
        first = prefix + min(names)
        places: set[int] = set()
        for name, best, _ in self._ranked:
            below = 1 if name == "crowds" else 0  # a directory counts among its own entries
            values = counts if name in ("wide", "crowds") else sizes
            least = -best.floor - below
            place_of_first = (root, first) if name in ("wide", "heavy") else (depth, root, first)
            if best.passes_by(place_of_first):
                least += 1  # rows with an equal number would follow the kept rows
            if max(values) >= least:
                places.update(place for place, value in enumerate(values) if value >= least)
        for place in sorted(places):
            count, size = counts[place], sizes[place]
            path = prefix + names[place]
            self._rank(DirectoryRow(root, path, depth, count + 1, size, count, size))

    def directory(self, row: DirectoryRow) -> None:
        """Add a directory whose contents have all been added."""
        if "dirsize" in self._facets:
            self._add_directory_size(row.own_entries, 1)
        self._rank(row)

    def _add_directory_size(self, number: int, times: int) -> None:
        """Add directories that contain this number of entries."""
        tally = self.profile.directory_sizes.setdefault(bin_of(number), [0, 0])
        add_to(tally, (times, number * times))

    def _rank(self, row: DirectoryRow) -> None:
        for name, best, number in self._ranked:
            if -number(row) > best.floor:
                continue
            if name in ("wide", "heavy"):
                best.add(msgspec.structs.replace(row, path=_listed(row.path)))
            elif len(row.path) <= LONGEST_PATH_BYTES:
                # A directory with a longer path is represented by its ancestors.
                best.add(row)

    # ---- the end ---------------------------------------------------------------

    def end(self, roots: tuple[bytes, ...]) -> Profile:
        """Complete the profile and return it."""
        self._bound_ages()
        profile = self.profile
        profile.roots = roots
        profile.kinds = self._kinds
        profile.sizes = self._sizes.in_bins()
        profile.largest_bytes = self._sizes.largest_bytes
        profile.unit_counts = self._sizes.unit_counts
        profile.edge_tallies = self._sizes.edge_tallies
        self._owners.end(profile, "owners")
        self._groups.end(profile, "groups")
        self._extensions.end(profile, "extensions")
        for name, best in self._files.items():
            setattr(profile, name, best.rows())
        for name, rows in self._directories.items():
            setattr(profile, name, rows.rows())
        return profile


def _listed(path: bytes) -> bytes:
    """Return a path for a top list, shortened and marked with dots if it is too long."""
    if len(path) <= _LONGEST_LISTED_BYTES:
        return path
    return path[: _LONGEST_LISTED_BYTES - 3] + b"..."


def _bounded(table: dict[int, list[int]], unit: int, first: int, last: int) -> dict[int, list[int]]:
    """Merge tallies before `first` or after `last` into those of `first` and `last`.

    A key consists of a time, multiplied by `unit`, and a second property below `unit`.
    """
    bounded: dict[int, list[int]] = {}
    for key, tally in table.items():
        time_, remainder = divmod(key, unit)
        place = min(max(time_, first), last) * unit + remainder
        if place in bounded:
            add_to(bounded[place], tally)
        else:
            bounded[place] = tally
    return bounded


def extension_of(name: bytes) -> str:
    """Return the extension of a name in lower case, or an empty string if it has no usable one.

    A long extension, or one with characters other than printable ASCII, is not usable.
    """
    stem, dot, extension = name.rpartition(b".")
    if not dot or not stem or not 0 < len(extension) <= LONGEST_EXTENSION:
        return ""
    text = extension.lower().decode("ascii", "replace")
    return text if text.isprintable() and text.isascii() else ""
