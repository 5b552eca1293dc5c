"""Every tool runs on a processor of 2008: no dependency may demand newer instructions.

A wheel that is compiled for a newer processor ends the process by SIGILL, with no message, on
machines that lack one of its instructions. The machine that the tests run on usually has them, so
qemu's user-mode emulation takes its place: one smoke run of each tool, with everything that it
imports. Skipped where there is no ``qemu-x86_64`` (package qemu-user).
"""

from __future__ import annotations

import filecmp
import platform
import re
import shutil
import signal
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import PackageNotFoundError, distribution, requires
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.conftest import Run
from tests.mpi import mpirun_prefix
from tests.signed import signature_of
from tests.tools.fcp.interrupts import interrupt
from tests.tools.fcp.running import ONE
from tests.tools.fcp.trees import build_flat_tree, build_small_tree

# x86-64-v2, the oldest processor that numpy's wheels support: SSE4.2 and POPCNT, but no AVX.
PROCESSOR = "Nehalem"
# Machine code, each a function of its own: pcmpgtq (SSE4.2), vpaddd with ymm (AVX2), and with zmm
# (AVX-512), and ret.
OLD, AVX2, AVX512 = "660f3837c1c3", "c5fdfec1c3", "62f17d48fec1c3"
# Processes that are killed on purpose write no core files.
EXECUTE = """
import ctypes, mmap, resource, sys
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
memory.write(bytes.fromhex(sys.argv[1]))
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
ctypes.CFUNCTYPE(None)(address)()
print("executed", flush=True)
"""
IMPORT = """
import importlib, resource, sys
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
for name in sys.argv[1:]:
    print(name, flush=True)
    try:
        importlib.import_module(name)
    except Exception:
        pass  # it wants a library that is not here: not what is asked
"""


@pytest.fixture(scope="session")
def old(run: Run) -> list[str]:
    """Return the command that runs this Python on the old processor, or skip the test."""
    if platform.machine() != "x86_64":
        pytest.skip(f"this machine is {platform.machine()}, not x86_64")
    program = shutil.which("qemu-x86_64") or shutil.which("qemu-x86_64-static")
    if program is None:
        pytest.skip("qemu-x86_64 is not installed (package qemu-user)")
    # Users may have configured a newer processor, whose routines would also be chosen here.
    command = [program, "-cpu", PROCESSOR, "-U", "OPENBLAS_CORETYPE", sys.executable]
    done = run([*command, "-c", EXECUTE, OLD])
    if done.stdout != b"executed\n":
        pytest.skip(f"this Python does not run under {program} -cpu {PROCESSOR}: {done.stderr!r}")
    return command


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a small tree to copy, sign and profile."""
    return Path(build_small_tree(bytes(tmp_path / "tree")).decode())


def _same(left: Path, right: Path) -> bool:
    found = filecmp.dircmp(left, right)
    _, different, unread = filecmp.cmpfiles(left, right, found.common_files, shallow=False)
    return not (found.left_only or found.right_only or different or unread) and all(
        _same(left / name, right / name) for name in found.common_dirs
    )


@pytest.mark.parametrize("code", [AVX2, AVX512], ids=["AVX2", "AVX-512"])
def test_newer_instructions_are_fatal_there(run: Run, old: list[str], code: str) -> None:
    """Newer instructions kill the process; otherwise the tests below could not fail."""
    done = run([*old, "-c", EXECUTE, code])
    assert done.returncode == -signal.SIGILL
    assert done.stdout == b""


def _extension_modules() -> list[str]:
    """Return the extension modules of the installed dependencies, including extras."""
    names = []
    for requirement in requires("pcircle") or []:
        try:
            files = distribution(re.split(r"[^\w.-]", requirement)[0]).files or []
        except PackageNotFoundError:  # belongs to an extra that is not installed
            continue
        for file in files:
            suffix = next((s for s in EXTENSION_SUFFIXES if file.name.endswith(s)), None)
            if suffix is not None:
                names.append(".".join([*file.parts[:-1], file.name.removesuffix(suffix)]))
    return names


def test_every_extension_module_is_loaded(run: Run, old: list[str]) -> None:
    """The modules of every declared dependency are loaded, including future ones."""
    names = _extension_modules()
    assert {"msgspec._core", "xxhash._xxhash"} <= set(names)
    done = run([*old, "-c", IMPORT, *names])
    assert done.returncode == 0, f"{done.stdout.split()[-1]!r} ends with {done.returncode}"


def test_fcp(run: Run, old: list[str], tree: Path, tmp_path: Path) -> None:
    for options in (["-j1"], ["-a", "-j2", "-s", "--verify"]):
        copied = tmp_path / "".join(options)
        done = run([*old, "-m", "pcircle.tools.fcp", *options, tree, copied])
        assert done.returncode == 0, done.stderr
        assert _same(tree, copied)
    assert done.stdout.decode().split()[0] == signature_of(bytes(copied))


def test_fcp_resumes(run: Run, old: list[str], tmp_path: Path) -> None:
    """A resumed fcp uses numpy to look up completed entries."""
    source = build_flat_tree(bytes(tmp_path / "flat"), 8, 250, 1000)
    copied = tmp_path / "copied"
    interrupt(ONE, bytes(tmp_path), source, bytes(copied))
    done = run([*old, "-X", "importtime", "-m", "pcircle.tools.fcp", "--resume", source, copied])
    assert done.returncode == 0, done.stderr
    assert re.search(rb"\| +numpy$", done.stderr, re.MULTILINE)
    assert _same(tmp_path / "flat", copied)


@pytest.mark.mpi
def test_fcp_under_mpi(run: Run, old: list[str], tree: Path, tmp_path: Path) -> None:
    done = run(
        [*mpirun_prefix(), "-np", "2", *old, "-m", "pcircle.tools.fcp", tree, tmp_path / "copied"]
    )
    assert done.returncode == 0, done.stderr
    assert _same(tree, tmp_path / "copied")


def test_fsum(run: Run, old: list[str], tree: Path, tmp_path: Path) -> None:
    fsum = [*old, "-m", "pcircle.tools.fsum", "-j2"]
    done = run([*fsum, "-o", tmp_path / "manifest", tree])
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode().split()[0] == signature_of(bytes(tree))
    done = run([*fsum, "--check", tmp_path / "manifest"])
    assert done.returncode == 0, done.stderr


def test_fprof(run: Run, old: list[str], tree: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    options = ["-j2", "--by=age,owner,ext", "--compress", f"--html={page}"]
    done = run([*old, "-m", "pcircle.tools.fprof", *options, tree])
    assert done.returncode == 0, done.stderr
    assert b"</html>" in page.read_bytes()


@pytest.mark.skipif(find_spec("matplotlib") is None, reason="matplotlib is not installed")
def test_a_picture(run: Run, old: list[str], tree: Path, tmp_path: Path) -> None:
    picture = tmp_path / "picture.png"
    done = run([*old, "-m", "pcircle.tools.fprof", "-j1", f"--plot={picture}", tree])
    assert done.returncode == 0, done.stderr
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_fbench(run: Run, old: list[str], tmp_path: Path) -> None:
    size = ["--files=2", "--blocks=4", "--block-size=4k"]
    done = run([*old, "-m", "pcircle.tools.fbench", *size, tmp_path])
    assert done.returncode == 0, done.stderr
    assert b"operations on names" in done.stdout
