"""A source that is edited all the time, and the permitted contents of its copy.

Each file contains its number and version. Files are saved by a rename over one of their names, like
in editors; or written into, in several steps, after which their time is restored (as by ``cp
-p``) or not. So for each name the history of files and versions is known. A copy must be one of
these: whole, or partly written as at some moment, the first half of a version and the second half
of the previous one; and no other mixture.

File systems store times in steps of some milliseconds: a writer waits for longer than that before
the last step, or no program could detect it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Collection
from random import Random

from tests.tools.fcp.trees import MIB, make_directory

_STEP_S = 0.012


def text_of(number: int, version: int, size: int) -> bytes:
    """Return the content of a version of a file."""
    line = b"file %d version %d\n" % (number, version)
    return (line * (size // len(line) + 1))[:size]


class Edited:
    """A tree of files of one, two and three names, which is edited while the context is active."""

    def __init__(self, root: bytes, seed: int, small: int = 900, large: int = 3) -> None:
        self._rng = Random(f"edits {seed}")
        self._root = make_directory(root)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._numbers: dict[bytes, int] = {}
        self._versions: dict[int, int] = {}
        self._sizes: dict[int, int] = {}
        self._seen: dict[bytes, set[tuple[int, int]]] = {}
        self.edits = 0
        folders = [make_directory(root, b"d%d" % number) for number in range(30)]
        for number in range(small + large):
            size = 5 * MIB if number < large else self._rng.choice((40, 700, 3000, 200_000))
            names = self._rng.sample(folders, self._rng.choice((1, 2, 3)))
            paths = [os.path.join(folder, b"f%d" % number) for folder in names]
            with open(paths[0], "xb") as file:
                file.write(text_of(number, 0, size))
            for path in paths[1:]:
                os.link(paths[0], path)
            self._sizes[number], self._versions[number] = size, 0
            for path in paths:
                name = os.path.relpath(path, root)
                self._numbers[name], self._seen[name] = number, {(number, 0)}

    def __enter__(self) -> Edited:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        names = sorted(self._numbers)
        large = [name for name in names if self._sizes[self._numbers[name]] > MIB]
        while not self._stop.is_set():
            name = self._rng.choice(large if self._rng.random() < 0.1 else names)
            if self._rng.random() < 0.6:
                self._save(name)
            else:
                self._write_into(name)
            self.edits += 1

    def _save(self, name: bytes) -> None:
        """Replace the file of a name by another of equal size; its other names keep the old one."""
        number = len(self._sizes)
        size = self._sizes[number] = self._sizes[self._numbers[name]]
        self._versions[number] = 0
        self._seen[name].add((number, 0))
        new = os.path.join(os.path.dirname(self._root), b"edited")
        with open(new, "wb") as file:
            file.write(text_of(number, 0, size))
        # As from an archive, whose files have one time: size and time prove nothing.
        os.utime(new, ns=(10**18, 10**18))
        os.rename(new, os.path.join(self._root, name))
        self._numbers[name] = number

    def _write_into(self, name: bytes) -> None:
        number = self._numbers[name]
        version = self._versions[number] = self._versions[number] + 1
        for other, of in self._numbers.items():
            if of == number:
                self._seen[other].add((number, version))
        path = os.path.join(self._root, name)
        before = os.stat(path)
        text = text_of(number, version, self._sizes[number])
        half = len(text) // 2
        fd = os.open(path, os.O_WRONLY)
        try:
            os.pwrite(fd, text[:half], 0)
            time.sleep(_STEP_S)
            os.pwrite(fd, text[half:], half)
            time.sleep(_STEP_S)
            if self._rng.random() < 0.7:
                os.utime(fd, ns=(before.st_atime_ns, before.st_mtime_ns))
            else:
                os.utime(fd)
        finally:
            os.close(fd)

    def wrong(self, copy: bytes, failed: Collection[bytes]) -> list[str]:
        """Describe errors of a copy: unreported missing names, and contents.

        `failed` are the paths of reported entries. Call this after the edits have ended.
        """
        found = []
        for name, seen in self._seen.items():
            try:
                with open(os.path.join(copy, name), "rb") as file:
                    text = file.read()
            except FileNotFoundError:
                if os.path.join(self._root, name) not in failed:
                    found.append(f"{name!r} is missing")
                continue
            words = text.split(b"\n", 1)[0].split()
            version = (int(words[1]), int(words[3]))
            if version not in seen:
                found.append(f"{name!r} is {version}, which it never was")
            elif text not in self._states(*version):
                found.append(f"{name!r}, of {len(text)} bytes, is a mixture")
        return found

    def _states(self, number: int, version: int) -> list[bytes]:
        """A version of a file, and the contents while it was written."""
        size = self._sizes[number]
        whole, half = text_of(number, version, size), size // 2
        return [whole, whole[:half] + text_of(number, version - 1, size)[half:]]
