"""The differences of two manifests, top down: subtrees with equal digests are skipped."""

from __future__ import annotations

from collections.abc import Iterator

from pcircle.core.guards import require
from pcircle.fs.directories import join_path
from pcircle.ops.digest.manifest import Manifest, pair_entries
from pcircle.tools.fsum.items import Difference


def differences(old: Manifest, new: Manifest) -> Iterator[Difference]:
    """Yield the differences of entries of `old` and `new`, directory by directory."""
    a, b = old.root, new.root
    if (a.kind, a.digest) == (b.kind, b.digest):
        return
    if a.kind != b"d" or b.kind != b"d":
        yield Difference("changed", b".")
        return
    paths = [b""]
    while paths:
        path = paths.pop()
        deeper = []
        sections = (iter(manifest.section(path) or ()) for manifest in (old, new))
        for was, now in pair_entries(*sections):
            entry = require(now or was)
            inner = join_path(path, entry.name)
            shown = inner + (b"/" if entry.kind == b"d" else b"")
            if was is None:
                yield Difference("new", shown)
            elif now is None:
                yield Difference("missing", shown)
            elif (was.kind, was.digest) != (now.kind, now.digest):
                if was.kind == now.kind == b"d":
                    deeper.append(inner)
                else:
                    yield Difference("changed", shown)
        paths += reversed(deeper)
