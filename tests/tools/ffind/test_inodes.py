"""Tests of inode data: flags, attributes, access lists, capabilities, layouts.

GNU find has none of these: flags are compared with lsattr, the others with the system calls.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fusefs.fixture import Mount
from tests.fusefs.layouts import NAME, Md, pack_composite
from tests.tools.fcp.running import TWO
from tests.tools.fcp.test_lustre import PROGRESSIVE, write_laid_out
from tests.tools.frm.running import grow

from .running import found

MIB = 1 << 20
_CAPABILITY = struct.pack("<IIIII", 0x02000001, 1 << 13, 0, 0, 0)  # like setcap cap_net_raw+ep
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root may set these")
FLAGS = {"a": "", "b": "A", "c": "d", "d/e": "Ad", "d/f": "S", "g": "AdS"}


def _marked(top: bytes) -> dict[str, str]:
    """Return lsattr's letters for each path, except those that the file system sets by itself."""
    done = subprocess.run(["lsattr", "-R", top], capture_output=True, check=True, text=True)
    shown = {}
    for line in done.stdout.splitlines():
        letters, _, path = line.partition(" ")
        if path and not path.endswith(":"):
            name = os.path.relpath(path.strip(), os.fsdecode(top))
            shown[name] = letters.replace("-", "").translate(str.maketrans("", "", "eINE"))
    return shown


@root_only
@pytest.mark.skipif(shutil.which("chattr") is None, reason="chattr is not installed")
@pytest.mark.parametrize(
    "asked", ["A", "d", "-A", "-d", "-Ad", "Ad", "/Ad", "/S", "-AdS", "S", "/dS"]
)
def test_flags_are_those_of_lsattr(tmp_path: Path, asked: str) -> None:
    top = grow(os.fsencode(tmp_path / "tree"), list(FLAGS))
    for name, letters in FLAGS.items():
        if letters:
            command = ["chattr", f"+{letters}", os.path.join(os.fsdecode(top), name)]
            if subprocess.run(command, capture_output=True, check=False).returncode:
                pytest.skip("this file system has no such flags")
    shown = _marked(top)
    wanted = set(asked.lstrip("-/"))
    expected = []
    for path, letters in shown.items():
        has = set(letters)
        fits = wanted <= has if asked[0] == "-" else wanted == has
        if bool(wanted & has) if asked[0] == "/" else fits:
            expected.append(path)
    assert expected or asked == "-AdS"
    lines = found(".", "-mindepth", "1", "-flags", asked, launcher=TWO, cwd=top)
    assert lines == sorted(os.fsencode(f"./{path}") for path in expected)


@root_only
@pytest.mark.skipif(shutil.which("setfacl") is None, reason="setfacl is not installed")
def test_attributes_lists_and_capabilities(place: bytes) -> None:
    top = grow(place + b"/tree", ["plain", "named", "other", "capable", "d/list", "d/mode", "dir/"])
    os.setxattr(top + b"/named", "user.color", b"red")
    os.setxattr(top + b"/other", "user.colors", b"")
    os.setxattr(top + b"/d/mode", "trusted.color", b"")
    os.setxattr(top + b"/capable", "security.capability", _CAPABILITY)
    os.symlink("named", top + b"/link")
    for spec, name in (("u:7:r", b"/d/list"), ("d:u:7:rwx", b"/dir"), ("u::rwx", b"/d/mode")):
        subprocess.run(["setfacl", "-m", spec, top + name], check=True)
    paths = [b"."]
    for directory, directories, files in os.walk(top):
        inner = os.path.relpath(directory, top)
        paths += [os.path.normpath(os.path.join(inner, child)) for child in directories + files]

    def having(test: Callable[[str], bool]) -> list[bytes]:
        """Return the paths that have an attribute with a matching name."""
        matching = [
            path
            for path in paths
            if any(map(test, os.listxattr(os.path.join(top, path), follow_symlinks=False)))
        ]
        return sorted(b"./" + path if path != b"." else path for path in matching)

    system_attribute = "security.selinux"
    for words, test in (
        (["-xattr"], lambda name: name != system_attribute),
        (["-xattrname", "color"], lambda name: name == "user.color"),
        (["-xattrname", "user.color"], lambda name: name == "user.color"),
        (["-xattrname", "trusted.color"], lambda name: name == "trusted.color"),
        (["-acl"], lambda name: name.startswith("system.posix_acl_")),
        (["-capable"], lambda name: name == "security.capability"),
    ):
        expected = having(test)
        assert expected, words
        assert found(".", *words, launcher=TWO, cwd=top) == expected, words
        missing = {b"./" + path if path != b"." else path for path in paths} - set(expected)
        assert found(".", "!", *words, cwd=top) == sorted(missing), words
    assert found("-L", "link", "-xattrname", "color", cwd=top) == [b"link"]
    assert found("link", "-xattrname", "color", cwd=top) == []


def test_layouts_of_lustre(fuse: Mount, place: bytes) -> None:
    """Layouts are found on a file system that has them; other file systems have none."""
    mounted = fuse(lustre=True)
    os.setxattr(mounted.path, NAME, Md(1, 4 * MIB).pack())
    top = mounted.path + b"/tree"
    os.makedirs(top + b"/own")
    layouts = {
        b"one": Md(1, MIB),
        b"four": Md(4, MIB, b"flash"),
        b"six": Md(6, 2 * MIB, b"disk"),
    }
    for name, layout in layouts.items():
        write_laid_out(top + b"/" + name, layout.pack(), 100)
    write_laid_out(top + b"/parts", pack_composite(PROGRESSIVE), 300_000)
    os.setxattr(top + b"/own", NAME, Md(5, 2 * MIB, b"flash").pack())
    targets = {}
    for name in layouts:
        value = os.getxattr(top + b"/" + name, NAME)
        objects = value[48:] if layouts[name].pool else value[32:]
        targets[name] = {index for *_, index in struct.iter_unpack("<QQII", objects)}
    expected = {
        ("-stripe-count", "4"): {b"four"},
        ("-stripe-count", "+4"): {b"six", b"own", b"parts"},
        ("-stripe-count", "-2", "-type", "f"): {b"one"},
        ("-stripe-size", "1M", "-type", "f"): {b"one", b"four"},
        ("-stripe-size", "+2M", "-type", "f"): {b"parts"},
        ("-pool", "flash"): {b"four", b"own"},
        ("-pool", "disk"): {b"six", b"parts"},
        ("-pool", "nowhere"): set(),
        ("-layout", "released"): set(),
    }
    for number in range(8):
        has = {name for name, numbers in targets.items() if number in numbers}
        expected["-ost", str(number), "!", "-name", "parts", "-type", "f"] = has
    for words, names in expected.items():
        lines = found(".", "-mindepth", "1", *words, launcher=TWO, cwd=top)
        assert lines == sorted(b"./" + name for name in names), words
    grow(place + b"/elsewhere", ["a"])
    for primary in ("-stripe-count", "-ost", "-mdt"):
        assert found(place + b"/elsewhere", primary, "-99") == []
