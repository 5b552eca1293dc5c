"""Files that are created with their final owner and mode, and exceptions.

In a directory that this job has created, closed to other users, a file is created with its final
attributes, which are not set again. They are set if the kernel creates it with others.
"""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.tools.fcp.judge import differences
from tests.tools.fcp.running import ONE, clean_environment, command
from tests.tools.fcp.test_syscalls import calls_of
from tests.tools.fcp.trees import make_directory, set_times, write_file

MODES = (0o644, 0o600, 0o400, 0o000, 0o666, 0o777, 0o755, 0o4755, 0o2755, 0o1644)
ANOTHER, GROUP = 1001, 1002


def _build(root: bytes) -> bytes:
    """Build few and many files in a directory, of ten modes, and links; some have other owners."""
    for directory, count in (b"few", 12), (b"many", 90):
        made = make_directory(root, directory)
        for number in range(count):
            path = made + b"/%03d" % number
            write_file(path, b"%d" % number, MODES[number % len(MODES)])
            if not os.geteuid() and not number % 4:
                os.chown(path, ANOTHER if number % 8 else -1, GROUP)
                os.chmod(path, MODES[number % len(MODES)])
        for number in range(3):
            os.symlink(b"000", made + b"/link%d" % number)
        if not os.geteuid():
            os.lchown(made + b"/link1", ANOTHER, GROUP)
    set_times(root)
    return root


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077], ids=oct)
@pytest.mark.parametrize("above", ["plain", "group", "taken"])
def test_copies_have_the_attributes_of_their_sources(umask: int, above: str, place: bytes) -> None:
    source, target = _build(place + b"/source"), make_directory(place, b"above") + b"/copy"
    if above == "group":  # it is inherited
        if os.geteuid():
            pytest.skip("only root may give another group")
        os.chown(place + b"/above", -1, GROUP)
        os.chmod(place + b"/above", 0o2755)
    elif above == "taken":  # a directory of another owner
        os.chmod(make_directory(target, b"many"), 0o777)
    fcp = command(ONE, ["-qpT", source, target])
    subprocess.run(fcp, check=True, umask=umask, env=clean_environment(), stdin=subprocess.DEVNULL)
    assert differences(source, target) == []


@pytest.mark.parametrize(
    ("umask", "owner", "is_right"),
    [(0o022, 0, True), (0o077, 0, False), (0o022, ANOTHER, False)],
    ids=["as made", "umask", "owner"],
)
def test_correct_attributes_are_not_set_again(
    umask: int, owner: int, is_right: bool, place: bytes
) -> None:
    if os.geteuid():
        pytest.skip("only root may give another owner")
    source = make_directory(place, b"source")
    for number in range(100):
        write_file(source + b"/%03d" % number, b"", 0o644)
        os.chown(source + b"/%03d" % number, owner, 0)
    options = ["-p", "--no-checkpoint"]
    calls = calls_of(place, source, place + b"/copy", options, umask=umask)
    assert differences(source, place + b"/copy") == []
    if is_right:
        assert calls["fchown"] + calls["fchmod"] < 50  # for a hundred files
