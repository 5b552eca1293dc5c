"""The guards that protect data work under ``python -O``, which removes ``assert``.

The product uses ``assert`` only in functions named ``check``, which the simulator calls after every
step and the tools never call. Invariants are checked by ``pcircle.core.errors``, even where only a
type checker needs them. Likewise no result of a write is ignored, because a write may be short.
"""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pcircle.core.errors import Inconsistent, require, require_that, require_type
from tests.conftest import ROOT

PACKAGE = ROOT / "pcircle"
INVARIANTS = re.compile(r"_?check(_\w+)?")


@functools.cache
def _nodes(path: Path) -> list[tuple[str, ast.AST]]:
    """Return all nodes of a module, each with the name of the function that contains it."""
    found: list[tuple[str, ast.AST]] = []
    waiting: list[tuple[str, ast.AST]] = [("", ast.parse(path.read_bytes()))]
    while waiting:
        function, node = waiting.pop()
        found.append((function, node))
        inner = node.name if isinstance(node, ast.FunctionDef) else function
        waiting += [(inner, child) for child in ast.iter_child_nodes(node)]
    return found


def _modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield str(path.relative_to(PACKAGE)), path


def test_no_code_depends_on_an_assert() -> None:
    found = [
        f"{name}:{node.lineno}"
        for name, path in _modules()
        for function, node in _nodes(path)
        if isinstance(node, ast.Assert) and not INVARIANTS.fullmatch(function)
    ]
    assert found == []
    users = [name for name, path in _modules() if "circle.invariants" in path.read_text()]
    assert users == [], "the product would rest on them"
    debug = [name for name, path in _modules() if "__debug__" in path.read_text()]
    assert debug == []


def _drops_result(node: ast.AST) -> bool:
    """Return whether a statement writes several bytes and ignores the number written."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(call := node.value, ast.Call)
        and isinstance(function := call.func, ast.Attribute)
        and function.attr in ("write", "writev", "pwrite", "pwritev", "sendfile", "copy_file_range")
        and isinstance(function.value, ast.Name)
        and function.value.id == "os"
        and not (
            len(call.args) > 1
            and isinstance(data := call.args[1], ast.Constant)
            and isinstance(data.value, bytes)
            and len(data.value) == 1
        )
    )


def test_no_short_write_is_ignored() -> None:
    found = [name for name, path in _modules() for _, node in _nodes(path) if _drops_result(node)]
    assert found == [], "use pcircle.core.writing"


@pytest.mark.parametrize(
    ("source", "drops"),
    [
        ("os.write(fd, data)", True),
        ("os.pwrite(fd, b'ab', 0)", True),
        ("os.write(fd, b'a')", False),
        ("count = os.write(fd, data)", False),
        ("write_all(fd, data)", False),
    ],
)
def test_dropped_results_are_found(source: str, drops: bool) -> None:
    assert any(_drops_result(node) for node in ast.walk(ast.parse(source))) == drops


def test_guards() -> None:
    assert require(0) == 0
    assert require_type(bytes, b"") == b""
    require_that(True, "never said")
    with pytest.raises(Inconsistent, match="missing"):
        require(None)
    with pytest.raises(Inconsistent, match="found str instead of bytes"):
        require_type(bytes, "")
    with pytest.raises(Inconsistent, match="so it is"):
        require_that(False, "so it is")


_PROGRAM = """
from pcircle.core.errors import Inconsistent
from pcircle.ops.digest import Signer
from pcircle.ops.digest.digests import BLOCK_BYTES, BlockHasher
from pcircle.ops.digest.signer import PART

assert False, "asserts are taken out here"
signer = Signer("sha256", "")
hasher = BlockHasher(signer.algorithm)
part = PART.pack(0, 1) + bytes(32)


def end_too_early():
    hasher.add(10, b"1")
    hasher.end(5)


for call in (
    lambda: signer.seal_large_file(2 * BLOCK_BYTES, 2, part),
    lambda: signer.seal_large_file(2 * BLOCK_BYTES, 2, part + part),
    lambda: hasher.begin(1),
    lambda: [hasher.begin(0), hasher.add(0, b"12"), hasher.add(1, b"2")],
    end_too_early,
):
    try:
        print("believed", call())
    except Inconsistent:
        print("refused")
"""


def test_digests_of_missing_or_doubled_blocks_are_refused_without_asserts(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)
    done = subprocess.run(
        [sys.executable, "-O", program], capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["refused"] * 5, done.stderr
