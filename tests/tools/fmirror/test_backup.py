"""`--backup-dir`: names and permissions of backups."""

from __future__ import annotations

import json
import os
import stat
import subprocess

import pytest

from tests.programs import required
from tests.tools.fcp.running import ONE
from tests.tools.fcp.trees import write_file

from .running import as_root, mirrored, run_fmirror


@pytest.mark.parametrize("name", [b"n" * 255, b"n" * 254, "\u00e9".encode() * 127], ids=len)
@pytest.mark.parametrize("how", ["replaced", "removed", "removed directory"])
def test_names_of_the_full_length_are_kept_more_than_once(
    place: bytes, name: bytes, how: str
) -> None:
    source, target, backup = (place + b"/" + entry for entry in (b"a", b"b", b"kept"))
    os.mkdir(source)
    path = source + b"/" + name
    for content in (b"1", b"22", b"333"):
        if how == "removed directory":
            os.mkdir(path)
            write_file(path + b"/file", content)
        else:
            if how == "replaced" and os.path.exists(path):
                os.unlink(path)
            write_file(path, content)
        mirrored(ONE, "--backup-dir", backup, source, target)
        if how == "removed directory":
            os.unlink(path + b"/file")
            os.rmdir(path)
        elif how == "removed":
            os.unlink(path)
        if how != "replaced":
            mirrored(ONE, "--delete", "--allow-empty", "--backup-dir", backup, source, target)
            assert os.listdir(target) == []
    names = os.listdir(backup)
    assert len(names) == (2 if how == "replaced" else 3)
    for entry in names:
        assert entry.decode()  # no character is cut


def test_directories_have_the_modes_of_those_that_they_stand_for(place: bytes) -> None:
    source, target, backup = (place + b"/" + entry for entry in (b"a", b"b", b"kept"))
    modes = {b"d": 0o755, b"d/private": 0o700, b"d/private/shared": 0o775, b"d/fixed": 0o555}
    for path in modes:
        os.makedirs(source + b"/" + path)
    for path in modes:
        write_file(source + b"/" + path + b"/file", b"1")
    for path, mode in modes.items():
        os.chmod(source + b"/" + path, mode)
    mirrored(ONE, source, target)
    for path in modes:
        with open(source + b"/" + path + b"/file", "wb") as stream:
            stream.write(b"22")
    mirrored(ONE, "--backup-dir", backup, source, target)
    made = {path: stat.S_IMODE(os.stat(backup + b"/" + path).st_mode) for path in modes}
    assert made == {**modes, b"d/fixed": 0o755}  # its owner moves more entries to it


@as_root
def test_failed_moves_are_not_counted(place: bytes) -> None:
    source, target, backup = (place + b"/" + entry for entry in (b"a", b"b", b"kept"))
    os.makedirs(source)
    os.makedirs(target + b"/d/e")
    write_file(target + b"/d/e/file", b"1")
    write_file(target + b"/single", b"1")
    if subprocess.run([required("chattr"), "+i", target + b"/d"], check=False).returncode:
        pytest.skip("no file can be made immutable here")
    try:
        words = ("--delete", "--allow-empty", "--backup-dir", backup, "--json", "-", source, target)
        # Flags that are not preserved are still respected.
        finished = run_fmirror(ONE, "--preserve=mode,timestamps", *words)
    finally:
        subprocess.run(["chattr", "-i", target + b"/d"], check=True)
    assert finished.code == 1, finished.said
    report = json.loads(finished.out)
    assert [failure["error"] for failure in report["failures"]] == ["EPERM"]
    assert report["removed"] == 1
    assert "fmirror: 1 entry moved to the backup" in finished.said
