"""Without a required package, or if its import fails, one line names it.

A module finder that is installed before the command starts simulates the missing package.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pcircle.core.errors import REQUIRED_PACKAGES
from tests.conftest import ROOT, Run

ABSENT = """\
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {modules!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
"""
BROKEN = "raise ImportError('libfancy.so.7: cannot open shared object file\\n\\nIMPORTANT: ...')\n"
REASON = "cannot be imported (libfancy.so.7: cannot open shared object file)"

# Each tool with a package that it imports before any work.
TOOLS = {
    "fbcast": (["msgspec", "lru-dict"], ["tree/file", "."]),
    "fbench": (["msgspec"], ["--case=blocking", "."]),
    "fchgrp": (["msgspec"], ["0", "tree"]),
    "fchmod": (["msgspec", "lru-dict"], ["u+r", "tree"]),
    "fchown": (["msgspec"], ["0", "tree"]),
    "fcp": (["msgspec", "lru-dict", "xxhash"], ["tree", "copy"]),
    "fdiff": (["msgspec", "xxhash"], ["tree", "tree"]),
    "ffind": (["msgspec", "lru-dict"], ["tree"]),
    "fls": (["msgspec", "lru-dict"], ["tree"]),
    "fmirror": (["msgspec", "lru-dict", "xxhash"], ["tree", "copy"]),
    "fprof": (["msgspec"], ["tree"]),
    "frm": (["msgspec"], ["-r", "tree"]),
    "fsum": (["msgspec", "lru-dict"], ["tree"]),
    "pcircle": (["msgspec"], ["doctor", "--no-trials", "tree"]),
}
CASES = [(tool, package) for tool, (packages, _) in TOOLS.items() for package in packages]
SCALE = ["pcircle", "scale", "--files=1e4", "--ranks=4"]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "file").write_bytes(b"content")
    return tmp_path


def without(place: Path, *packages: str) -> dict[str, str]:
    """Return the environment of a Python that lacks these packages."""
    modules = {REQUIRED_PACKAGES[package] for package in packages}
    return _with(place, "sitecustomize.py", ABSENT.format(modules=modules))


def with_broken(place: Path, package: str) -> dict[str, str]:
    """Return the environment of a Python in which the import of a package fails."""
    return _with(place, f"{REQUIRED_PACKAGES[package]}/__init__.py", BROKEN)


def _with(place: Path, file: str, code: str) -> dict[str, str]:
    path = place / "packages" / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(code)
    former_path = os.environ.get("PYTHONPATH", "")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(place / "packages"), former_path])}


@pytest.mark.parametrize("broken", [False, True], ids=["absent", "broken"])
@pytest.mark.parametrize(("tool", "package"), CASES)
def test_a_missing_package_is_named_in_one_line(
    run: Run, place: Path, tool: str, package: str, broken: bool
) -> None:
    environ = with_broken(place, package) if broken else without(place, package)
    problem = f"{package} is not installed: pip install {package}"
    if broken:
        problem = f"{package} {REASON}: pip install --force-reinstall {package}"
    command = [sys.executable, str(ROOT / "bin" / tool), *TOOLS[tool][1]]
    done = run(command, env=environ, cwd=place)
    assert (done.returncode, done.stdout) == (2, b""), done.stderr
    assert done.stderr.decode() == f"{tool}: {problem}\n"
    assert sorted(os.listdir(place)) == ["packages", "tree"]


@pytest.mark.parametrize("start", ["bin", "module"])
def test_all_missing_packages_are_named(run: Run, place: Path, start: str) -> None:
    begin = [str(ROOT / "bin" / "fls")] if start == "bin" else ["-m", "pcircle.tools.fls"]
    environ = without(place, *REQUIRED_PACKAGES)
    done = run([sys.executable, *begin, "tree"], env=environ, cwd=place)
    names = " ".join(REQUIRED_PACKAGES)
    assert done.returncode == 2
    said = f"fls: {names.replace(' ', ', ')} are not installed: pip install {names}\n"
    assert done.stderr.decode() == said
    for words in (["--help"], ["--version"]):
        assert run([sys.executable, *begin, *words], env=environ, cwd=place).returncode == 0
    listed = run([sys.executable, str(ROOT / "bin" / "pcircle")], env=environ, cwd=place)
    assert (listed.returncode, listed.stderr) == (0, b"")


@pytest.mark.parametrize("broken", [False, True])
def test_numpy_is_named_where_it_is_used(run: Run, place: Path, broken: bool) -> None:
    environ = with_broken(place, "numpy") if broken else without(place, "numpy")
    problem = f"numpy {REASON}" if broken else "numpy is not installed: pip install numpy"
    done = run([sys.executable, "-m", *SCALE], env=environ, cwd=place)
    assert done.returncode == 2
    assert done.stderr.decode().startswith(f"pcircle: {problem}")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("broken", [False, True])
def test_rich_is_named_where_the_bar_is_drawn(place: Path, broken: bool, jobs: int) -> None:
    """The job has already started, so it stops as at a limit and can be resumed."""
    (place / "tree" / "large").write_bytes(bytes(3 << 20))
    environ = with_broken(place, "rich") if broken else without(place, "rich")
    problem = f"rich {REASON}" if broken else "rich is not installed: pip install rich"
    command = [
        "pcircle.tools.fcp",
        f"-j{jobs}",
        "--progress=always",
        "--bwlimit=1M",
        "tree",
        "copy",
    ]
    terminal, stderr = os.openpty()
    try:
        line = [sys.executable, "-m", *command]
        done = subprocess.run(
            line, env={**environ, "TERM": "xterm"}, cwd=place, stderr=stderr, check=False
        )
        os.close(stderr)
        said = os.read(terminal, 1 << 16).decode()
    finally:
        os.close(terminal)
    assert done.returncode == 4, said
    assert problem in " ".join(said.split())
    assert "Traceback" not in said
    assert "internal error" not in said


@pytest.mark.parametrize("path", ["msgspec", "msgspec/__init__.py", "."])
def test_a_package_that_cannot_be_read_is_not_reported_as_absent(
    run: Run, place: Path, path: str
) -> None:
    """Root may read everything, so it gives up that capability."""
    environ = _with(place, "msgspec/__init__.py", "")
    command = [sys.executable, "-c", _ONLY_HERE, str(place / "packages"), "tree"]
    if os.geteuid() == 0:
        if (setpriv := shutil.which("setpriv")) is None:
            pytest.skip("setpriv is not installed")
        without = "-dac_override,-dac_read_search"
        command = [setpriv, f"--bounding-set={without}", f"--inh-caps={without}", *command]
    unreadable = place / "packages" / path
    unreadable.chmod(0)
    done = run(command, env=environ, cwd=place)
    unreadable.chmod(0o700)
    problem = f"cannot import msgspec: '{unreadable}': Permission denied"
    assert (done.returncode, done.stderr.decode()) == (2, f"fls: {problem}\n")


# The required packages are searched for only in one folder.
_ONLY_HERE = """
import sys
folder = sys.argv.pop(1)
sys.path = [p for p in sys.path if p and "site-packages" not in p and p != folder] + [folder]
sys.argv[0] = "fls"
from pcircle.tools.fls.__main__ import main
sys.exit(main())
"""
