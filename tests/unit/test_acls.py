"""Files that tools replace stay accessible to the same users, and to no other user.

Results, manifests and files that the asynchronous layer copies are written to a temporary name, in
directories that may have default ACLs, and renamed over files that may have ACLs.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from pcircle.aio import Files
from pcircle.cli.json_output import put
from pcircle.tools.fsum.manifests import place_for
from tests.tools.fcp.access import ACCESS, DEFAULT, access_of, drawn_seed, give, random_list


def _document(path: Path) -> None:
    put(b"new", str(path))


def _manifest(path: Path) -> None:
    os.rename(place_for(os.fsencode(path)), path)


def _copy(path: Path) -> None:
    os.rename(path, path.with_name("source"))
    path.write_bytes(b"old")
    with Files(threads=1) as io:
        io.copy_file(str(path.with_name("source")), str(path)).result(30.0)


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("replace", [_document, _manifest, _copy])
def test_access_is_unchanged(replace: Callable[[Path], None], listed: bool, tmp_path: Path) -> None:
    rng = random.Random(seed := drawn_seed())
    for number in range(20):
        path = tmp_path / str(number) / "file"
        path.parent.mkdir()
        path.write_bytes(b"old")
        path.chmod(rng.randrange(0o1000) | 0o600)
        if listed:
            give(os.fsencode(path), ACCESS, random_list(rng))
            path.chmod(path.stat().st_mode | 0o600)
        give(os.fsencode(path.parent), DEFAULT, random_list(rng))
        before = access_of(os.fsencode(path)), path.stat().st_ino
        replace(path)
        assert access_of(os.fsencode(path)) == before[0], f"seed {seed}"
        assert path.stat().st_ino != before[1]
