"""The examples work as described with every kind of ranks, and stay as short as promised."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from tests.conftest import ROOT, Run

TREE_WALK = ROOT / "examples" / "tree_walk.py"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tree")
    for number in range(300):
        folder = root / f"{number % 7}" / f"{number % 5}" / f"{number % 3}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"file-{number}").write_bytes(bytes(number))
    (root / "link").symlink_to("0")  # must not be followed
    (root / "empty").mkdir()
    with open(os.fsencode(root) + b"/\xff", "wb") as file:
        file.write(b"12345")
    return root


def walked(root: Path) -> str:
    """Return the totals of os.walk in the format of the example."""
    files = total_bytes = 0
    for folder, directories, names in os.walk(root):
        links = [name for name in directories if os.path.islink(os.path.join(folder, name))]
        for name in names + links:
            files += 1
            total_bytes += os.lstat(os.path.join(folder, name)).st_size
    return f"{files:,} files, {total_bytes:,} bytes\n"


@pytest.mark.parametrize("cores", [1, 4])
def test_tree_walk_counts_like_os_walk(run: Run, tree: Path, cores: int) -> None:
    start = (
        "import os, runpy, sys\n"
        f"os.sched_getaffinity = lambda pid: set(range({cores}))\n"
        f"sys.argv = sys.argv[1:]\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    done = run([sys.executable, "-c", start, TREE_WALK, tree])
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode() == walked(tree)


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [1, 4])
def test_tree_walk_under_a_launcher(
    run: Run, mpirun: Callable[[int], list[str]], tree: Path, ranks: int
) -> None:
    done = run([*mpirun(ranks), sys.executable, str(TREE_WALK), str(tree)])
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode() == walked(tree)


def test_tree_walk_names_unreadable_entries(run: Run, tree: Path) -> None:
    done = run([sys.executable, TREE_WALK, tree / "missing"])
    assert done.returncode == 0
    assert b"missing': No such file or directory" in done.stderr
    assert done.stdout == b"0 files, 0 bytes\n"


def test_tree_walk_has_about_thirty_lines_of_code() -> None:
    source = TREE_WALK.read_text()
    module = ast.parse(source)
    first = module.body[0]
    assert isinstance(first, ast.Expr)
    assert ast.get_docstring(module)
    documented = set(range(first.lineno, (first.end_lineno or 0) + 1))
    code = [
        line
        for number, line in enumerate(source.splitlines(), 1)
        if line.strip() and not line.strip().startswith("#") and number not in documented
    ]
    assert len(code) <= 32


def test_hash_ahead_is_sha256sum(run: Run, tmp_path: Path) -> None:
    for number in range(40):
        (tmp_path / f"{number:02d}").write_bytes(bytes(number) * 1000)
    (tmp_path / "folder").mkdir()
    done = run([sys.executable, ROOT / "examples" / "hash_ahead.py", tmp_path])
    assert (done.returncode, done.stderr) == (0, b"")
    *lines, whole = done.stdout.decode().splitlines()
    digests = {path.name: sha256(path.read_bytes()).hexdigest() for path in tmp_path.glob("??")}
    assert lines == [f"{digests[name]}  {name}" for name in sorted(digests)]
    together = "".join(digests[name] for name in sorted(digests))
    assert whole == f"{sha256(together.encode()).hexdigest()}  all 40 files"
    assert run([sys.executable, ROOT / "examples" / "hash_ahead.py"]).returncode == 2
