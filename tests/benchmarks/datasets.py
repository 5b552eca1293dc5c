"""The data sets: the trees to copy, created once and kept.

Each data set represents one cause of slow copies: the cost of a file (small, empty), of a byte
(large, medium), of a directory (fours), of a directory that can't be divided (wide), of a chain
that can't be walked in parallel (deep), of start-up (tiny), and of their combination (mixed).

Contents are slices of one random block: no block is zero (a tool that looks for holes must not find
any) and nothing compresses. A file system that removes duplicate blocks would find some.

A data set is in ``DIR/pcircle-bench/NAME-PARAMETERS/tree``; ``census.json`` next to it is written
last. A folder without it, or whose tree differs from it, is created again.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

FOLDER = "pcircle-bench"
KiB, MiB, GiB = 1 << 10, 1 << 20, 1 << 30

_VERSION = 1  # of the contents below: part of the key, so that old trees are not reused
_SEED = 20180711
_SAMPLE_FILES = 16
_SAMPLE_BYTES = 64 * KiB
_DEEP_LEVELS = 1000
_BLOCK_BYTES = 4 * KiB  # minimum usage of a small file, to estimate space


class Census(NamedTuple):
    """The number of entries of a tree by type; directories without the root."""

    directories: int
    files: int
    links: int
    specials: int
    bytes: int

    @property
    def entries(self) -> int:
        return self.directories + self.files + self.links + self.specials


class Survey(NamedTuple):
    """A census, and the relative names of a fixed number of randomly selected files."""

    census: Census
    sample: tuple[str, ...]


class Recipe(NamedTuple):
    """How a data set is created, and the space that it needs (estimated bytes and inodes)."""

    name: str
    key: str
    what: str
    build: Callable[[str], None]
    space_bytes: int
    inodes: int


class DataSet(NamedTuple):
    """A data set that is complete on disk."""

    name: str
    what: str
    tree: str
    survey: Survey


class NoRoom(Exception):
    """The file system lacks the bytes or inodes for the data set and one copy of it."""


class Noise:
    """A writer of files of incompressible bytes, each from its own place in one random block."""

    def __init__(self) -> None:
        self._block = memoryview(random.Random(_SEED).randbytes(MiB))

    def write(self, path: str, size_bytes: int, salt: int) -> None:
        """Create `path` with `size_bytes` bytes that depend on `salt`."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            left = size_bytes
            start = salt * 4099 % MiB
            while left:
                left -= os.write(descriptor, self._block[start : start + left])
                start = (start + 4099) % MiB
        finally:
            os.close(descriptor)


def _grid(per_directory: int, total: int, size_bytes: int) -> Callable[[str], None]:
    """Create `total` files of one size, `per_directory` in each directory."""

    def build(root: str) -> None:
        noise = Noise()
        for index in range(total):
            if index % per_directory == 0:
                folder = os.path.join(root, f"dir{index // per_directory:04d}")
                os.mkdir(folder)
            noise.write(os.path.join(folder, f"file{index:07d}"), size_bytes, index)

    return build


def _flat(total: int, size_bytes: int) -> Callable[[str], None]:
    """Create `total` files of one size in the root itself."""

    def build(root: str) -> None:
        noise = Noise()
        for index in range(total):
            noise.write(os.path.join(root, f"file{index:07d}"), size_bytes, index)

    return build


def _deep(levels: int) -> Callable[[str], None]:
    """Create a chain of directories with one file of 1 KiB in each."""

    def build(root: str) -> None:
        noise = Noise()
        folder = root
        for level in range(levels):
            folder += "/d"
            os.mkdir(folder)
            noise.write(folder + "/f", KiB, level)

    return build


def _home_sizes(files: int) -> list[int]:
    """Draw sizes as in home directories: log-normal, median 4 KiB, mean near 70 KiB.

    Half of the files hold 1% of the bytes and a few of tens of MiB hold most of them, a consistent
    result of surveys of file systems. One file in fifty is empty.
    """
    dice = random.Random(_SEED)
    sizes = (min(int(4096 * dice.lognormvariate(0.0, 2.4)), 128 * MiB) for _ in range(files))
    return [0 if index % 50 == 0 else size for index, size in enumerate(sizes)]


def _mixed(files: int, directories: int) -> Callable[[str], None]:
    """Create a random tree with unevenly spread files and one symbolic link in 100."""

    def build(root: str) -> None:
        noise = Noise()
        dice = random.Random(_SEED + 1)
        folders = [root]
        for index in range(directories):
            # Any earlier directory may be the parent: the depth is logarithmic, as in home
            # directories.
            folders.append(os.path.join(dice.choice(folders), f"dir{index:04d}"))
            os.mkdir(folders[-1])
        weights = [dice.expovariate(1.0) ** 2 for _ in folders]
        homes = dice.choices(folders, weights, k=files)
        for index, (folder, size) in enumerate(zip(homes, _home_sizes(files), strict=True)):
            noise.write(os.path.join(folder, f"file{index:05d}.dat"), size, index)
            if index % 100 == 99:
                os.symlink(f"file{index:05d}.dat", os.path.join(folder, f"link{index:05d}"))

    return build


def recipes(scale: float = 1.0) -> dict[str, Recipe]:
    """Return all data sets by name; `scale` multiplies counts, or the size of large, not tiny."""

    def scaled(count: int) -> int:
        return max(1, round(count * scale))

    small, medium, wide, empty = scaled(20_000), scaled(500), scaled(200_000), scaled(500_000)
    fours, large_bytes = scaled(60_000), scaled(2 * GiB)
    levels = min(_DEEP_LEVELS, scaled(_DEEP_LEVELS))  # more would exceed PATH_MAX
    files, directories = scaled(30_000), scaled(3_000)
    mixed_bytes = sum(_home_sizes(files))

    def recipe(
        name: str, key: str, what: str, build: Callable[[str], None], data_bytes: int, inodes: int
    ) -> Recipe:
        space_bytes = data_bytes + inodes * _BLOCK_BYTES
        return Recipe(name, f"{name}-{key}-v{_VERSION}", what, build, space_bytes, inodes)

    made = (
        recipe("tiny", "3", "three files of 1 KiB", _flat(3, KiB), 3 * KiB, 4),
        recipe("small", f"{small}x4k", f"{small:,} files of 4 KiB, 1,000 to a directory",
               _grid(1000, small, 4 * KiB), small * 4 * KiB, small + 20),
        recipe("fours", f"{fours}", f"{fours:,} empty files, 4 to a directory",
               _grid(4, fours, 0), 0, fours + fours // 4),
        recipe("large", f"{large_bytes}", f"one file of {large_bytes / GiB:.3g} GiB",
               _flat(1, large_bytes), large_bytes, 2),
        recipe("medium", f"{medium}x2MB", f"{medium:,} files of 2 MB",
               _flat(medium, 2_000_000), medium * 2_000_000, medium + 1),
        recipe("mixed", f"{files}-{directories}",
               f"{files:,} files as in home directories, {directories:,} nested directories",
               _mixed(files, directories), mixed_bytes, files + directories),
        recipe("deep", f"{levels}", f"{levels:,} nested directories with one file of 1 KiB each",
               _deep(levels), levels * KiB, 2 * levels),
        recipe("wide", f"{wide}x100", f"one directory of {wide:,} files of 100 bytes",
               _flat(wide, 100), wide * 100, wide + 1),
        recipe("empty", f"{empty}", f"{empty:,} empty files, 1,000 to a directory",
               _grid(1000, empty, 0), 0, empty + 500),
    )  # fmt: skip
    return {recipe.name: recipe for recipe in made}


def _walk(root: str) -> Iterator[tuple[str, os.stat_result]]:
    pending = [root]
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                yield entry.path, entry.stat(follow_symlinks=False)
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)


def survey(root: str) -> Survey:
    """Count `root`'s entries and draw the sample, with one lstat per entry and constant memory."""
    directories = files = links = specials = total_bytes = 0
    sample: list[str] = []
    dice = random.Random(_SEED)
    for path, status in _walk(root):
        if stat.S_ISDIR(status.st_mode):
            directories += 1
        elif stat.S_ISREG(status.st_mode):
            files += 1
            total_bytes += status.st_size
            # Algorithm R (Vitter 1985): every file is equally likely to stay in the sample.
            place = files - 1 if files <= _SAMPLE_FILES else int(dice.random() * files)
            if place < _SAMPLE_FILES:
                sample[place : place + 1] = [os.path.relpath(path, root)]
        elif stat.S_ISLNK(status.st_mode):
            links += 1
        else:
            specials += 1
    return Survey(Census(directories, files, links, specials, total_bytes), tuple(sample))


def _probe(path: str) -> tuple[int, list[bytes]]:
    """Return the size, and the beginning, middle and end of a file."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(descriptor).st_size
        offsets = (0, size // 2, max(0, size - _SAMPLE_BYTES))
        return size, [os.pread(descriptor, _SAMPLE_BYTES, offset) for offset in offsets]
    finally:
        os.close(descriptor)


def fault(source: DataSet, target: str) -> str | None:
    """Return an error in the copy `target`, or None."""
    try:
        found = survey(target).census
        wanted = source.survey.census
        if found != wanted:
            differing = (
                f"{kind} {have:,} of {want:,}"
                for kind, have, want in zip(Census._fields, found, wanted, strict=True)
                if have != want
            )
            return "incomplete: " + ", ".join(differing)
        for name in source.survey.sample:
            if _probe(os.path.join(source.tree, name)) != _probe(os.path.join(target, name)):
                return f"content differs: {name}"
    except OSError as error:
        return f"unreadable copy: {error}"
    return None


def remove(path: str) -> None:
    """Delete a tree by rm(1): shutil.rmtree recurses, and deep trees exceed Python's stack."""
    subprocess.run(["rm", "-rf", "--", path], check=True)


def _check_room(recipe: Recipe, folder: Path, copies: int) -> None:
    usage = os.statvfs(folder)
    if recipe.space_bytes * copies > shutil.disk_usage(folder).free:
        need = recipe.space_bytes * copies / GiB
        raise NoRoom(f"{recipe.name} needs {need:.2g} GiB on {folder}")
    if usage.f_files and recipe.inodes * copies > usage.f_favail:  # 0: no fixed number of inodes
        raise NoRoom(f"{recipe.name} needs {recipe.inodes * copies:,} inodes on {folder}")
    if recipe.name == "deep" and len(os.fsencode(folder)) + 2 * _DEEP_LEVELS > 3900:
        raise NoRoom(f"deep would pass PATH_MAX below {folder}: name a folder with a shorter path")


def prepare(recipe: Recipe, folder: Path) -> DataSet:
    """Return the data set in `folder`; create it if it is not complete.

    Raises NoRoom where the file system can't hold it together with one copy.
    """
    home = folder / recipe.key
    tree = str(home / "tree")
    record = home / "census.json"
    if record.is_file():
        found = survey(tree)
        if json.loads(record.read_text()) == list(found.census):
            _check_room(recipe, folder, copies=1)
            return DataSet(recipe.name, recipe.what, tree, found)
    if home.exists():
        remove(str(home))
    _check_room(recipe, folder, copies=2)
    os.makedirs(tree)
    recipe.build(tree)
    made = survey(tree)
    record.write_text(json.dumps(list(made.census)))
    return DataSet(recipe.name, recipe.what, tree, made)
