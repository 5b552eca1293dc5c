"""The choice between the C module and its Python equivalent, and the reported reason."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest

from pcircle import __version__
from pcircle.fs.native import libc, pure
from pcircle.fs.stats import Table

_ASK = """
import sys
sys.path[:0] = sys.argv[1:]
import pcircle.fs
pcircle.fs.__path__[:0] = sys.argv[1:]
from pcircle.fs import native
print(native.is_native, native.module.__name__, native.reason)
"""
NATIVE = Path(__file__).resolve().parents[3] / "pcircle" / "fs" / "native"


def asked(*places: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Query a new interpreter, which searches these directories first for the package."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PCIRCLE_")}
    return subprocess.run(
        [sys.executable, "-c", _ASK, *map(str, places)],
        check=False,
        capture_output=True,
        text=True,
        env=environment | variables,
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Create a directory that contains the package without the C module."""
    (tmp_path / "native").mkdir()
    for path in NATIVE.glob("*.py"):
        (tmp_path / "native" / path.name).write_bytes(path.read_bytes())
    return tmp_path


def test_without_the_c_module_python_is_used(copy: Path) -> None:
    done = asked(copy)
    assert done.stdout.startswith("False pcircle.fs.native.pure the C module was not built"), done


def test_a_module_with_another_interface_is_not_used(copy: Path) -> None:
    (copy / "native" / "_native.py").write_text("INTERFACE = 0\n")
    done = asked(copy)
    assert done.stdout.startswith("False pcircle.fs.native.pure the C module has interface 0"), done


def test_a_module_that_cannot_be_loaded_is_not_used(copy: Path) -> None:
    (copy / "native" / "_native.abi3.so").write_bytes(b"no library")
    done = asked(copy)
    assert done.stdout.startswith("False pcircle.fs.native.pure the C module cannot be loaded")


def test_the_python_equivalent_can_be_requested() -> None:
    done = asked(PCIRCLE_NATIVE="0", PCIRCLE_REQUIRE_NATIVE="1")
    assert done.stdout == "False pcircle.fs.native.pure PCIRCLE_NATIVE is 0\n", done


def test_a_required_module_that_is_missing_is_an_error(copy: Path) -> None:
    done = asked(copy, PCIRCLE_REQUIRE_NATIVE="1")
    assert done.returncode == 1
    assert "ImportError: PCIRCLE_REQUIRE_NATIVE is set, and the C module was" in done.stderr


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("tools.fcp", ["--version", "-v"]),
        ("tools.fcp", ["-v", "--version"]),
        ("tools.ffind", ["--version", "--verbose"]),
        ("tools.fls", ["--version", "-v"]),
        ("__main__", ["-v", "--version"]),
    ],
)
@pytest.mark.parametrize("setting", ["0", "1"])
def test_the_version_states_the_choice(module: str, words: list[str], setting: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", f"pcircle.{module}", *words],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"PCIRCLE_NATIVE": setting},
    )
    name = "pcircle" if module == "__main__" else module.removeprefix("tools.")
    version, operations = done.stdout.splitlines()
    assert version == f"{name} {__version__}"
    if setting == "0":
        assert operations == "file operations: in Python, which is slower: PCIRCLE_NATIVE is 0"
    else:
        assert operations.startswith("file operations: in ")


@pytest.mark.parametrize("code", [0, -1])
def test_a_statx_that_fills_no_buffer_is_not_used(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    library = SimpleNamespace(statx=lambda *arguments: code)
    monkeypatch.setattr("ctypes.CDLL", lambda name: library)
    monkeypatch.setattr(libc, "_own", threading.local())
    assert libc.status_rows() is None


def test_without_ctypes_names_are_looked_up_by_os(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "directory" / "file").write_bytes(b"12345")

    def fail() -> NoReturn:
        raise ImportError("ctypes")

    monkeypatch.setattr(pure, "_libc", fail)
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        arguments = [b"directory"], os.O_RDONLY, -1, 0xFFFF, 10, 10, 1, False, 0, False, False
        *_, text, _, _, table = pure.scan_directories(fd, *arguments, 1 << 62)
    finally:
        os.close(fd)
    assert (text, Table(table).column("size", 0, 1)) == (b"file\0", [5])
