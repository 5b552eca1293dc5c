"""The structure of the package: the permitted imports, and what start-up may load.

Read from the source with ``ast``, imports inside functions included.  A module that the table does
not place fails, so nothing escapes by being new.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
import tokenize
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.conftest import ROOT, Run

PACKAGE = ROOT / "pcircle"
LEAVES = {
    "acls",
    "buffers",
    "commands",
    "counting",
    "encoding",
    "errors",
    "finding",
    "guards",
    "modes",
    "mounts",
    "names",
    "optional",
    "owners",
    "timestamps",
    "trusted",
    "units",
    "writing",
}
TOOLS = {
    "fbcast",
    "fbench",
    "fchmod",
    "fcp",
    "fdiff",
    "ffind",
    "fls",
    "fmirror",
    "fprof",
    "frm",
    "fsum",
}
BELOW_TOOLS = {
    *LEAVES,
    "entry",
    "circle",
    "transport",
    "aio",
    "workers",
    "fs",
    "runtime",
    "checkpoint",
    "collective",
    "comparing",
    "copying",
    "signature",
    "outliving",
    "ui",
    "walk",
}
# What each part of the package may import, besides itself.
MAY_IMPORT: dict[str, set[str]] = {
    "": set(),  # pcircle/__init__.py
    "acls": set(),
    "buffers": set(),
    "entry": {"errors", "finding", "transport"},  # of whom nobody knows but the commands
    "commands": set(),  # it has names of the tools, and imports by these
    "counting": set(),
    "encoding": {"errors"},
    "errors": set(),
    "finding": set(),
    "guards": set(),
    "modes": set(),
    "mounts": set(),
    "names": set(),
    "optional": set(),
    "owners": {"acls"},
    "timestamps": set(),
    "trusted": {"mounts"},
    "units": set(),
    "writing": set(),
    "circle": {"errors", "guards"},
    "collective": {"transport", "writing"},
    "transport": {"buffers", "errors", "circle", "guards"},
    "workers": {"buffers", "errors", "guards"},
    "aio": {"acls", "buffers", "workers", "encoding", "errors", "guards", "writing"},
    "fs": {
        "acls",
        "buffers",
        "workers",
        "encoding",
        "errors",
        "guards",
        "mounts",
        "names",
        "owners",
        "trusted",
        "writing",
    },
    "outliving": {"circle", "errors", "runtime", "walk", "workers", "writing"},
    "runtime": {"circle", "transport", "workers", "errors", "guards", "writing"},
    "copying": {
        "timestamps",
        "buffers",
        "counting",
        "signature",
        "fs",
        "workers",
        "acls",
        "encoding",
        "errors",
        "guards",
        "names",
        "writing",
    },
    "comparing": {
        "acls",
        "buffers",
        "copying",
        "encoding",
        "errors",
        "fs",
        "guards",
        "mounts",
        "names",
        "owners",
        "signature",
    },
    "checkpoint": {"runtime", "fs", "encoding", "errors", "guards", "writing"},
    "signature": {
        "timestamps",
        "buffers",
        "fs",
        "errors",
        "guards",
        "optional",
        "trusted",
        "writing",
    },
    "tool": BELOW_TOOLS,
    "removing": {
        "encoding",
        "errors",
        "fs",
        "guards",
        "runtime",
        "tool",
        "trusted",
        "ui",
        "walk",
    },
    "transfer": {
        "checkpoint",
        "circle",
        "copying",
        "encoding",
        "errors",
        "fs",
        "guards",
        "outliving",
        "runtime",
        "signature",
        "tool",
        "trusted",
        "ui",
        "units",
        "walk",
    },
    "__main__": {"commands", "encoding", "entry", "errors", "transport", "ui", "writing"},
    "scale": {"entry", "errors", "guards", "tool", "ui", "units", "writing"},
    "testing": {"circle", "errors", "guards", "runtime", "transport", "workers"},
    "walk": {"timestamps", "fs", "guards", "runtime", "trusted", "workers", "writing"},
    "ui": {
        "timestamps",
        "acls",
        "names",
        "owners",
        "encoding",
        "units",
        "errors",
        "optional",
        "trusted",
        "writing",
    },
    **dict.fromkeys(
        {*TOOLS, "doctor"}, BELOW_TOOLS | {"comparing", "removing", "tool", "transfer"}
    ),
}
# The transports know what a message is, and nothing else of the engine.
TRANSPORT_MAY_IMPORT_OF_CIRCLE = {"pcircle.circle.messages"}
MPI_MODULE = PACKAGE / "transport" / "_mpi.py"
MAX_FUNCTION_LINES = 60
SLOW_TO_IMPORT = {"mpi4py", "numpy", "rich"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def _sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _against(paths: Sequence[Path], rule: Callable[[Path], Any]) -> dict[str, Any]:
    """The modules that break a rule, and how: what it has found there.

    One test for all of them: to begin a test takes longer than to look at a module.
    """
    return {_name(path): found for path in paths if (found := rule(path))}


PROJECT = ("pcircle", "tests", "examples", "docs")


class Facts(NamedTuple):
    """What the rules ask of a module, found in one walk: trees of all modules would fill memory."""

    imports: list[str]
    globals: list[int]
    functions: list[tuple[str, int]]
    docstring: str


@functools.cache
def _facts(path: Path) -> Facts:
    return _found(path, ast.parse(path.read_bytes(), filename=_name(path)))


def _found(path: Path, tree: ast.Module) -> Facts:
    facts = Facts([], [], [], ast.get_docstring(tree) or "")
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            facts.imports.extend(_imported(path, node))
        elif isinstance(node, ast.Global):
            facts.globals.append(node.lineno)
        elif isinstance(node, Function) and node.end_lineno is not None:
            facts.functions.append((node.name, node.end_lineno - node.lineno + 1))
    return facts


def _module_of(path: Path) -> list[str]:
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    return parts[:-1] if parts[-1] == "__init__" else parts


def _imported(path: Path, node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """The full name of every module that *node* imports; of what may be a module, too.

    ``from pcircle import errors`` gives both ``pcircle`` and ``pcircle.core.errors``.
    """
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    module = _module_of(path)
    package = module if path.name == "__init__.py" else module[:-1]
    base = package[: len(package) - node.level + 1] if node.level else []
    full = ".".join([*base, *filter(None, [node.module])])
    yield full
    yield from (f"{full}.{alias.name}" for alias in node.names)


def _part(module: str) -> str:
    """The part of the package that *module* (``pcircle.fs.walk``) belongs to: ``fs``."""
    return module.partition(".")[2].partition(".")[0]


def _forbidden(path: Path, imports: list[str]) -> list[str]:
    part = _part(".".join(_module_of(path)))
    assert part in MAY_IMPORT, f"{_name(path)}: the table does not place {part!r}"
    wrong = []
    for imported in imports:
        if imported.split(".")[0] != "pcircle":
            continue
        other = _part(imported)
        # What is no part of its own is a name of the package itself, as __version__ is.
        if other in ("", part) or not _is_part(other):
            continue
        if other not in MAY_IMPORT[part] or not _transport_is_modest(part, imported):
            wrong.append(imported)
    return wrong


def _is_part(name: str) -> bool:
    return name in MAY_IMPORT or (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").is_file()


def _transport_is_modest(part: str, imported: str) -> bool:
    if part != "transport" or _part(imported) != "circle":
        return True
    return any(
        f"{imported}.".startswith(f"{allowed}.") for allowed in TRANSPORT_MAY_IMPORT_OF_CIRCLE
    )


def test_imports_follow_the_table() -> None:
    wrong = _against(_sources("pcircle"), lambda path: _forbidden(path, _facts(path).imports))
    assert wrong == {}


@pytest.mark.parametrize(
    ("where", "source", "wrong"),
    [
        ("circle/engine.py", "import pcircle.transport", ["pcircle.transport"]),
        ("circle/engine.py", "from ..fs import walk", ["pcircle.fs", "pcircle.fs.walk"]),
        ("circle/engine.py", "from pcircle import units", ["pcircle.core.units"]),
        ("circle/__init__.py", "from ..aio import x", ["pcircle.aio", "pcircle.aio.x"]),
        ("fs/walk.py", "def f():\n    import pcircle.core.names", ["pcircle.core.names"]),
        ("fcp/cli.py", "import pcircle.tools.fsum.cli", ["pcircle.tools.fsum.cli"]),
        (
            "ui/table.py",
            "if TYPE_CHECKING:\n    import pcircle.tools.fcp.x",
            ["pcircle.tools.fcp.x"],
        ),
        ("transport/_local.py", "import pcircle.circle.engine", ["pcircle.circle.engine"]),
        ("units.py", "from . import errors", ["pcircle.core.errors"]),
        ("circle/engine.py", "from pcircle import __version__\nfrom . import queue", []),
        ("transport/_local.py", "from pcircle.circle.messages import Work", []),
        ("fcp/cli.py", "from ..runtime.loop import run\nimport pcircle.core.names", []),
    ],
)
def test_the_check_itself(where: str, source: str, wrong: list[str]) -> None:
    """The rules above refuse what they should, and nothing else."""
    path = PACKAGE / where
    assert _forbidden(path, _found(path, ast.parse(source)).imports) == wrong


Graph = dict[str, set[str]]


def _imports_inside(room: Path) -> Graph:
    """Of each module of a room, and of each room inside it, which others of these it imports."""
    base = len(_module_of(room / "__init__.py"))
    graph: Graph = {}
    for path in sorted(room.rglob("*.py")):
        module = _module_of(path)
        if len(module) == base:
            continue  # its own __init__.py
        names = {".".join(name.split(".")[: base + 1]) for name in _facts(path).imports}
        graph.setdefault(".".join(module[: base + 1]), set()).update(names)
    return {module: (names & graph.keys()) - {module} for module, names in graph.items()}


def _cycles(graph: Graph) -> list[list[str]]:
    """Return the import cycles of a graph, each as a path that ends where it begins."""
    done: set[str] = set()
    cycles: list[list[str]] = []

    def visit(module: str, path: list[str]) -> None:
        if module in path:
            cycles.append([*path[path.index(module) :], module])
        elif module not in done:
            for name in sorted(graph[module]):
                visit(name, [*path, module])
            done.add(module)

    for module in sorted(graph):
        visit(module, [])
    return cycles


def test_no_imports_in_circles_inside_a_room() -> None:
    folders = sorted({path.parent for path in _sources("pcircle")} - {PACKAGE})
    found = {_name(folder): _cycles(_imports_inside(folder)) for folder in folders}
    assert {name: cycles for name, cycles in found.items() if cycles} == {}


@pytest.mark.parametrize(
    ("graph", "cycles"),
    [
        ({}, []),
        ({"a": set(), "b": {"a"}, "c": {"a", "b"}}, []),
        ({"a": {"b"}, "b": {"a"}}, [["a", "b", "a"]]),
    ],
)
def test_cycles_are_found(graph: Graph, cycles: list[list[str]]) -> None:
    assert _cycles(graph) == cycles


def test_a_room_inside_a_room_is_one_of_its_files() -> None:
    inner = sorted(PACKAGE.glob("*/*/__init__.py"))
    assert inner
    for path in inner:
        name, graph = ".".join(_module_of(path)), _imports_inside(path.parents[1])
        assert name in graph
        assert not any(module.startswith(f"{name}.") for module in graph)
        assert all(module.startswith(f"{name}.") for module in _imports_inside(path.parent))


def test_every_folder_of_the_package_is_a_package() -> None:
    """Without its ``__init__.py`` a folder would be missing from the wheel."""
    folders = {path.parent for path in _sources("pcircle")}
    assert [_name(folder) for folder in folders if not (folder / "__init__.py").is_file()] == []


def _lines_that_name_mpi4py(path: Path) -> list[int]:
    """In code, that is: comments and docstrings may explain."""
    if path == MPI_MODULE or b"mpi4py" not in path.read_bytes():
        return []
    # From Python 3.12 on an f-string is several tokens.
    prose = (
        tokenize.COMMENT,
        tokenize.STRING,
        getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING),
    )
    with tokenize.open(path) as file:
        return [
            token.start[0]
            for token in tokenize.generate_tokens(file.readline)
            if "mpi4py" in token.string
            and (token.type not in prose or token.string.strip("bfru'\"").startswith("mpi4py"))
        ]


def test_only_its_transport_names_mpi4py() -> None:
    assert _against(_sources("pcircle"), _lines_that_name_mpi4py) == {}


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("x = 1\nimport mpi4py.MPI\n", [2]),
        ("from mpi4py import MPI\n", [1]),
        ("import_module('mpi4py.MPI')\nimport_module(f'mpi4py.{name}')\n", [1, 2]),
        ("# mpi4py\n", []),
        ("def f():\n    '''Load mpi4py.'''\n    return f'{by}: mpi4py {name}', 'no mpi4py'\n", []),
    ],
)
def test_code_that_names_mpi4py_is_found(tmp_path: Path, source: str, lines: list[int]) -> None:
    (tmp_path / "module.py").write_text(source)
    assert _lines_that_name_mpi4py(tmp_path / "module.py") == lines


def test_the_mpi_transport_is_where_this_file_says() -> None:
    assert "mpi4py" in {name.split(".")[0] for name in _facts(MPI_MODULE).imports}


def test_no_module_level_state_is_rebound() -> None:
    assert _against(_sources(*PROJECT), lambda path: _facts(path).globals) == {}


def test_every_module_says_why_it_exists() -> None:
    assert _against(_sources(*PROJECT), lambda path: not _facts(path).docstring.strip()) == {}


def _too_long(path: Path) -> list[str]:
    functions = _facts(path).functions
    return [f"{name}: {length} lines" for name, length in functions if length > MAX_FUNCTION_LINES]


def test_functions_are_short() -> None:
    assert _against(_sources(*PROJECT), _too_long) == {}


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["--no-such-option"], []])
def test_answers_at_once_load_nothing_slow(run: Run, arguments: list[str]) -> None:
    """Help, version and usage errors of fcp import neither mpi4py, numpy nor rich."""
    program = (
        "import sys\n"
        "from pcircle.tools.fcp.cli import main\n"
        "sys.argv = ['fcp', *sys.argv[1:]]\n"
        "try:\n"
        "    code = main()\n"
        "except SystemExit as exit:\n"
        "    code = exit.code\n"
        "print('LOADED', *{name.partition('.')[0] for name in sys.modules})\n"
        "sys.exit(code)\n"
    )
    done = run([sys.executable, "-c", program, *arguments])
    assert done.returncode == (0 if arguments in (["--help"], ["--version"]) else 2), done.stderr
    loaded = re.search(r"^LOADED (.*)$", done.stdout.decode(), re.MULTILINE)
    assert loaded is not None
    assert SLOW_TO_IMPORT.intersection(loaded[1].split()) == set()
