"""Hash the files of a directory while the next ones are being read: a program of one's own.

    python examples/hash_ahead.py DIR

Each file is read by one composite operation; its digest is a continuation, which runs apart from
the reading; the digest of all is made by `dataflow` when the last one is there. As many files are
read at once as pays where they are: one on a local disk, dozens on a slow remote one.
"""

from __future__ import annotations

import hashlib
import os
import sys

from pcircle.aio import Files, Future, dataflow


def hash_files(folder: str) -> tuple[str, dict[str, str]]:
    """The digest of all regular files of a directory, and of each, by name. OSError."""
    names = sorted(entry.name for entry in os.scandir(folder) if entry.is_file())
    with Files() as io:
        digests: list[Future[str]] = [
            io.read_file(os.path.join(folder, name)).then(
                lambda content: hashlib.sha256(content.result()).hexdigest()
            )
            for name in names
        ]
        whole = dataflow(lambda *each: hashlib.sha256("".join(each).encode()).hexdigest(), *digests)
        return whole.result(), dict(zip(names, (each.result() for each in digests), strict=True))


def main() -> int:
    """Print the digests as sha256sum does, and that of all of them."""
    if len(sys.argv) != 2:
        print(f"usage: {sys.argv[0]} DIR", file=sys.stderr)
        return 2
    whole, digests = hash_files(sys.argv[1])
    for name, digest in digests.items():
        print(f"{digest}  {name}")
    print(f"{whole}  all {len(digests)} files")
    return 0


if __name__ == "__main__":
    sys.exit(main())
