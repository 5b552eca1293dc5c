"""Optional packages that crash on import are refused before any work; the tool survives.

The package stands in for a wheel that was built for a newer processor: real modules on the path
that send SIGILL to the importing process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Run

KILL = "import os, signal; os.kill(os.getpid(), signal.SIGILL)\n"
# The first is fatal when it is imported, the second when it is used.
IMPORTED = KILL
USED = f"class blake3:\n    def __init__(self, data=b''):\n        {KILL}"
WORKING = "import hashlib\nblake3 = hashlib.sha256\n"
BROKEN = "raise ImportError('libfancy.so.7: cannot open shared object file')\n"
FATAL = "it crashes its process with SIGILL"

SIGN = ["pcircle.tools.fsum", "-j2", "-a", "blake3", "tree"]
COPY = ["pcircle.tools.fcp", "-j2", "-s=blake3", "tree", "copy"]
PROFILE = ["pcircle.tools.fprof", "-j2", "--plot", "picture.png", "tree"]
MEASURE = ["pcircle.tools.fbench", "-j1", "--case", "blocking", "--plot", "picture.png", "."]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "file").write_bytes(b"content")
    return tmp_path


def _environment(folder: Path, package: str, code: str) -> dict[str, str]:
    (folder / "packages" / package).mkdir(parents=True)
    (folder / "packages" / package / "__init__.py").write_text(code)
    path = os.pathsep.join([str(folder / "packages"), os.environ["PYTHONPATH"]])
    return {**os.environ, "PYTHONPATH": path}


@pytest.mark.parametrize(
    ("package", "code", "command", "why"),
    [
        ("blake3", IMPORTED, SIGN, FATAL),
        ("blake3", USED, SIGN, FATAL),
        ("blake3", USED, COPY, FATAL),
        ("blake3", BROKEN, SIGN, "ImportError: libfancy.so.7: cannot open"),
        ("matplotlib", IMPORTED, PROFILE, FATAL),
        ("matplotlib", BROKEN, PROFILE, "ImportError: libfancy.so.7: cannot open"),
        ("matplotlib", IMPORTED, MEASURE, FATAL),
    ],
    ids=["fsum", "fsum-used", "fcp", "fsum-broken", "fprof", "fprof-broken", "fbench"],
)
def test_a_fatal_package_is_refused(
    run: Run, folder: Path, package: str, code: str, command: list[str], why: str
) -> None:
    environment = _environment(folder, package, code)
    done = run([sys.executable, "-m", *command], env=environment, cwd=folder)
    said = done.stderr.decode()
    assert done.returncode == 2, said
    assert package in said
    assert why in said
    assert "Traceback" not in said
    assert done.stdout == b""
    assert sorted(os.listdir(folder)) == ["packages", "tree"]


def test_a_working_package_is_used(run: Run, folder: Path) -> None:
    environment = _environment(folder, "blake3", WORKING)
    digests = []
    for name in ("blake3", "sha256"):
        command = [sys.executable, "-m", "pcircle.tools.fsum", "-j2", "-a", name, "tree"]
        done = run(command, env=environment, cwd=folder)
        assert done.returncode == 0, done.stderr
        digests.append(done.stdout.decode().split()[0].split(":"))
    assert [digest[1] for digest in digests] == ["blake3", "sha256"]
    assert digests[0][2] == digests[1][2]


def test_unneeded_packages_are_not_tried(run: Run, folder: Path) -> None:
    code = f"open({str(folder / 'imported')!r}, 'w').close()\n"
    _environment(folder, "matplotlib", code)
    environment = _environment(folder, "blake3", code)
    for command in (["pcircle.tools.fsum", "tree"], ["pcircle.tools.fprof", "tree"]):
        done = run([sys.executable, "-m", *command], env=environment, cwd=folder)
        assert done.returncode == 0, done.stderr
    assert not (folder / "imported").exists()


@pytest.mark.mpi
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("command", [SIGN, COPY], ids=["fsum", "fcp"])
def test_one_node_that_lacks_it_ends_the_job(
    run: Run, mpirun: Callable[[int], list[str]], folder: Path, command: list[str], rank: int
) -> None:
    """If nodes have different processors, the job ends with the reason and no rank hangs."""
    code = (
        "import os\nnumber = os.environ.get('PMI_RANK') or os.environ.get('OMPI_COMM_WORLD_RANK')\n"
        f"if number == '{rank}':\n    {KILL}{WORKING}"
    )
    environment = _environment(folder, "blake3", code)
    words = [word for word in command if word != "-j2"]
    done = run([*mpirun(2), sys.executable, "-m", *words], env=environment, cwd=folder)
    said = done.stderr.decode()
    assert FATAL in said
    assert done.returncode == (4 if rank else 2), said
    assert done.stdout == b""
    assert rank or not (folder / "copy").exists()
