"""What guards data holds under ``python -O``, where ``assert`` is taken out.

The rule: the product has no ``assert``. What must hold is asked by ``pcircle.guards``, also where
only a type checker wants it. The invariants that the simulator looks at after every step are
asserts: no tool runs them.

In the same way one module writes: a loop over ``os.write`` of one's own is where data is lost. And
one hands out memory for what is read, ``pcircle.buffers``, for much depends on where that begins.
"""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pcircle.guards import Inconsistent, require, require_that, require_type
from tests.conftest import ROOT

PACKAGE = ROOT / "pcircle"
# What only the simulator and tests call.
INVARIANTS = {"circle/invariants.py": None, "circle/queue.py": "check", "circle/joins.py": "check"}
# Who calls the kernel's own write, and looks at what it says: one byte into a pipe, a probe of a
# full disk, what is measured, and copies of small files, which are done again if one comes short.
WRITERS = {
    "writing.py",
    "ui/output.py",
    "transport/_wake.py",
    "copying/target.py",
    "copying/plain.py",
    "fbench/cases.py",
}
# Who reads into bytes objects: what is small, or wanted as bytes in the end.
READERS = {
    "copying/links.py",
    "aio/operations.py",  # what its users ask for
    "checkpoint/hashes.py",  # hashes of NumPy, in blocks
    "checkpoint/index.py",  # rows of NumPy, which it keeps
    "checkpoint/journal.py",  # records, and where one begins again behind damage
    "checkpoint/node.py",  # a few numbers
    "copying/plain.py",  # what is small
    "ffind/evaluating/running.py",  # what commands write
    "finding.py",  # compiled modules, most of them small
    "checkpoint/resumed.py",  # a record
    "runtime/spill.py",  # a segment, to be decoded
    "signature/runs.py",  # entries, to be cut into bytes
    "transport/_wake.py",  # what wakes
    "walk/index.py",
    "walk/segments.py",
}
# Who makes such memory for anything else: names of attributes, the kernel's records of files, and
# what ranks share, what a child process notes for the line in the system's log.
OTHERS = {"encoding.py", "fs/file_system.py", "fs/status.py", "removing/intents.py", "ui/syslog.py"}
LARGE_BYTES = 64 << 10


@functools.cache
def _nodes(path: Path) -> list[tuple[str, ast.AST]]:
    """All nodes of a module, each with the name of the function that it is in."""
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


def test_nothing_rests_on_an_assert() -> None:
    found = [
        f"{name}:{node.lineno}"
        for name, path in _modules()
        for function, node in _nodes(path)
        if isinstance(node, ast.Assert)
        and not (name in INVARIANTS and INVARIANTS[name] in (None, function))
    ]
    assert found == []
    users = [name for name, path in _modules() if "circle.invariants" in path.read_text()]
    assert users == [], "the product would rest on them"
    debug = [name for name, path in _modules() if "__debug__" in path.read_text()]
    assert debug == []


def test_one_module_writes() -> None:
    found = {
        name
        for name, path in _modules()
        for _, node in _nodes(path)
        if isinstance(node, ast.Attribute)
        and node.attr in ("write", "pwrite")
        and isinstance(node.value, ast.Name)
        and node.value.id == "os"
    }
    assert found == WRITERS


def _is_of(node: ast.AST, module: str, *names: str) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and node.attr in names
        and isinstance(node.value, ast.Name)
        and node.value.id == module
    )


def _may_be_long(call: ast.Call) -> bool:
    """Whether an array may have many bytes from the beginning: it is of no small constant."""
    if not call.args:
        return False
    try:
        size = ast.literal_eval(call.args[0])
    except ValueError:
        return True
    return (size if isinstance(size, int) else len(size)) >= LARGE_BYTES


def _makes_memory(node: ast.AST) -> bool:
    """Whether a call makes memory that may be read into."""
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Name) and node.func.id == "bytearray":
        return _may_be_long(node)
    if _is_of(node.func, "mmap", "mmap"):
        return ast.unparse(node.args[0]) == "-1"
    return _is_of(node.func, "ctypes", "create_string_buffer") and _may_be_long(node)


@pytest.mark.parametrize(
    ("source", "makes"),
    [
        ("bytearray()", False),
        ("bytearray(1)", False),
        ("bytearray(b'abc')", False),
        ("bytearray(1 << 20)", True),
        ("bytearray(262144)", True),
        ("bytearray(SIZE)", True),
        ("memoryview(bytearray(plan.block_bytes))", True),
        ("mmap.mmap(-1, 4096)", True),
        ("mmap.mmap(fd, 4096)", False),
        ("ctypes.create_string_buffer(size)", True),
    ],
)
def test_what_makes_memory(source: str, makes: bool) -> None:
    assert any(_makes_memory(node) for node in ast.walk(ast.parse(source))) == makes


def test_one_module_hands_out_what_is_read_into() -> None:
    made = {name for name, path in _modules() for _, node in _nodes(path) if _makes_memory(node)}
    assert made == {"buffers.py", *OTHERS}
    readers = {
        name
        for name, path in _modules()
        for _, node in _nodes(path)
        if _is_of(node, "os", "read", "pread")
    }
    assert readers == READERS


def test_guards() -> None:
    assert require(0) == 0
    assert require_type(bytes, b"") == b""
    require_that(True, "never said")
    with pytest.raises(Inconsistent, match="missing"):
        require(None)
    with pytest.raises(Inconsistent, match="a str is where a bytes should be"):
        require_type(bytes, "")
    with pytest.raises(Inconsistent, match="so it is"):
        require_that(False, "so it is")


_PROGRAM = """
from pcircle.guards import Inconsistent
from pcircle.signature import Signer
from pcircle.signature.blocks import BLOCK_BYTES, BlockHasher
from pcircle.signature.signer import PART

assert False, "asserts are taken out here"
signer = Signer("sha256", "")
hasher = BlockHasher(signer.algorithm)
part = PART.pack(0, 1) + bytes(32)


def end_too_early():
    hasher.add(10, b"1")
    hasher.end(5)


for call in (
    lambda: signer.large(2 * BLOCK_BYTES, 2, part),
    lambda: signer.large(2 * BLOCK_BYTES, 2, part + part),
    lambda: hasher.begin(1),
    lambda: [hasher.begin(0), hasher.add(0, b"12"), hasher.add(1, b"2")],
    end_too_early,
):
    try:
        print("believed", call())
    except Inconsistent as error:
        print(error)
"""


def test_digests_of_missing_or_doubled_blocks_are_refused_without_asserts(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)
    done = subprocess.run(
        [sys.executable, "-O", program], capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines() == [
        "blocks of a file are missing",
        "blocks of a file came twice",
        "a range begins within a block",
        "what was read comes twice",
        "more was read than the range has",
    ], done.stderr
