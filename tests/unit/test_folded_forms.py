"""Names of ASCII letters have one Unicode form, other names may have several."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pcircle.fs.directories import Directories
from pcircle.ops.copy.entry import collisions
from pcircle.ops.copy.entry.collisions import Collisions


@pytest.mark.parametrize(
    ("name", "forms"), [(b"name", [False]), ("n\u00e4me".encode(), [False, True])]
)
def test_a_directory_is_asked_whether_it_folds_case_and_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: bytes, forms: list[bool]
) -> None:
    """It is asked once for both: case in any name, and form in a name that has several."""
    asked = []

    def folds_name(directory_fd: int, name: bytes, *, form: bool) -> bool:
        asked.append(form)
        return False

    monkeypatch.setattr(collisions, "folds_name", folds_name)
    checker = Collisions()
    checker.enter(Directories.__new__(Directories), 0, b"", made=False)
    (tmp_path / os.fsdecode(name)).touch()
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        checker.check(fd, name)
        checker.check(fd, name)
    finally:
        os.close(fd)
    assert asked == forms
