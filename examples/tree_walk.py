"""Count the files and bytes of a tree in parallel: the engine as a library.

python examples/tree_walk.py /usr            # one process per core
mpirun -np 8 python examples/tree_walk.py /usr
"""

from __future__ import annotations

import os
import sys

from pcircle.runtime import Context, Task, run


class Walk(Task[bytes, tuple[int, int]]):
    structured = False  # only the sum is wanted, not when each directory is done

    def seed(self) -> list[bytes]:
        return [os.fsencode(sys.argv[1])]

    def process(self, path: bytes, context: Context[bytes]) -> tuple[int, int]:
        try:
            entries = list(os.scandir(path))
        except OSError as error:
            context.note([f"{error.filename!r}: {error.strerror}"])
            return 0, 0
        directories = {e.path for e in entries if e.is_dir(follow_symlinks=False)}
        context.spawn(list(directories))
        files = [e for e in entries if e.path not in directories]
        return len(files), sum(e.stat(follow_symlinks=False).st_size for e in files)

    def merge(self, a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
        return a[0] + b[0], a[1] + b[1]


if __name__ == "__main__":
    end = run(Walk())
    if end.outcome is not None and end.outcome.result is not None:
        print("{:,} files, {:,} bytes".format(*end.outcome.result))
