"""A manifest of fsum replaces no file that another process has written meanwhile."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pcircle.tools.fsum.manifests import _give_name


@pytest.fixture
def parts(tmp_path: Path) -> bytes:
    """A complete manifest under its temporary name."""
    (tmp_path / ".parts").write_text("new")
    return os.fsencode(tmp_path / ".parts")


@pytest.mark.parametrize("exists", [False, True])
def test_a_free_name_or_an_empty_file_becomes_the_manifest(
    tmp_path: Path, parts: bytes, exists: bool
) -> None:
    if exists:
        (tmp_path / "manifest").touch()
    _give_name(parts, os.fsencode(tmp_path / "manifest"))
    assert (tmp_path / "manifest").read_text() == "new"
    assert os.listdir(tmp_path) == ["manifest"]


def test_a_file_with_content_stays(tmp_path: Path, parts: bytes) -> None:
    (tmp_path / "manifest").write_text("precious")
    with pytest.raises(FileExistsError):
        _give_name(parts, os.fsencode(tmp_path / "manifest"))
    assert (tmp_path / "manifest").read_text() == "precious"
    assert (tmp_path / ".parts").read_text() == "new"
