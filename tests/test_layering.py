"""The structure of the package: permitted imports, and modules that start-up may load.

The source is read with ``ast``, imports inside functions included. A module that the table does not
contain fails, so new modules cannot escape the check.
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
_ENGINE = {"core", "threads", "circle", "transport"}
_WALK = _ENGINE | {"fs", "runtime"}
_JOBS = _WALK | {"walk"}
_OPS = _JOBS | {"jobs"}
_COMMON = _OPS | {"ops", "cli"}
LIBRARIES = {"aio", "collective", "simulation", "testing"}
TOOLS = {
    path.parent.name
    for path in (PACKAGE / "tools").glob("*/__init__.py")
    if path.parent.name not in ("common", "doctor", "scale")
}
# The imports that each part of the package may have, in addition to its own modules.
MAY_IMPORT: dict[str, set[str]] = {
    # pcircle/__init__.py imports functions, errors and types of reports on demand.
    "": {"cli", "core", "jobs", "library", "tools", "tools.common"},
    "core": set(),
    "threads": {"core"},
    "fs": {"core", "threads"},
    "circle": {"core"},
    "transport": {"core", "circle"},
    "runtime": _ENGINE,
    "walk": _WALK,
    "jobs": _JOBS,
    "ops": _OPS,
    "cli": _OPS,
    "tools.common": _COMMON,
    "tools": _COMMON | LIBRARIES | {"tools.common"},
    "aio": _ENGINE | {"fs", "runtime"},
    "collective": _ENGINE | {"runtime"},
    "simulation": _ENGINE | {"runtime"},
    "testing": _ENGINE | {"runtime"},
    "__main__": {"cli", "core", "tools", "transport"},
    "library": {"cli", "core", "tools", "tools.common", "transport"},
    "scale": {"__main__"},  # python -m pcircle.scale
}
# The transports know the message types, and nothing else of the engine.
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
    """Return the modules that break a rule, with what it found there.

    One test covers all modules, because setting up a test takes longer than checking a module.
    """
    return {_name(path): found for path in paths if (found := rule(path))}


PROJECT = ("pcircle", "tests", "examples", "docs")


class Facts(NamedTuple):
    """The facts about a module that the rules need, collected in one walk to save memory."""

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
    """Return the full names of all modules that *node* imports, or may import.

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
    """Return the part of the package that *module* (``pcircle.fs.scan``) belongs to: ``fs``."""
    names = module.split(".")[1:]
    if names[:2] == ["tools", "common"]:
        return "tools.common"
    return names[0] if names else ""


def _tool(module: str) -> str:
    """Return the tool that *module* (``pcircle.tools.fcp.cli``) belongs to, or ""."""
    names = module.split(".")[1:]
    is_of_tool = len(names) > 1 and names[0] == "tools" and (PACKAGE / "tools" / names[1]).is_dir()
    return names[1] if is_of_tool else ""


def _forbidden(path: Path, imports: list[str]) -> list[str]:
    module = ".".join(_module_of(path))
    part = _part(module)
    assert part in MAY_IMPORT, f"{_name(path)}: the table does not place {part!r}"
    return [name for name in imports if name.split(".")[0] == "pcircle" and _is_wrong(module, name)]


def _is_wrong(module: str, imported: str) -> bool:
    part, other = _part(module), _part(imported)
    if not _is_part(other):
        return False  # a name of the package itself, such as __version__
    if part == other == "tools":
        return _tool(imported) not in ("", _tool(module)) and _tool(module) != ""
    is_placed = other == part or other in MAY_IMPORT[part]
    return not is_placed or not _transport_is_modest(part, imported)


def _is_part(name: str) -> bool:
    is_there = (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").is_file()
    return name != "" and (name in MAY_IMPORT or is_there)


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
        ("circle/engine.py", "from pcircle import walk", ["pcircle.walk"]),
        ("circle/__init__.py", "from ..aio import x", ["pcircle.aio", "pcircle.aio.x"]),
        ("fs/walk.py", "def f():\n    import pcircle.cli.listing", ["pcircle.cli.listing"]),
        ("tools/fcp/cli.py", "import pcircle.tools.fsum.cli", ["pcircle.tools.fsum.cli"]),
        ("tools/common/x.py", "import pcircle.tools.fsum.cli", ["pcircle.tools.fsum.cli"]),
        ("ops/x.py", "import pcircle.cli.listing", ["pcircle.cli.listing"]),
        (
            "cli/table.py",
            "if TYPE_CHECKING:\n    import pcircle.tools.fcp.x",
            ["pcircle.tools.fcp.x"],
        ),
        ("transport/_local.py", "import pcircle.circle.engine", ["pcircle.circle.engine"]),
        ("core/units.py", "from .. import walk", ["pcircle.walk"]),
        ("circle/engine.py", "from pcircle import __version__\nfrom . import queue", []),
        ("transport/_local.py", "from pcircle.circle.messages import Parcel", []),
        ("tools/fcp/cli.py", "from ...runtime.loop import run\nimport pcircle.cli.listing", []),
        ("tools/fcp/cli.py", "import pcircle.tools.common.x\nimport pcircle.tools.commands", []),
    ],
)
def test_the_rules_reject_violations(where: str, source: str, wrong: list[str]) -> None:
    """The rules above reject violations and nothing else."""
    path = PACKAGE / where
    assert _forbidden(path, _found(path, ast.parse(source)).imports) == wrong


Graph = dict[str, set[str]]


def _imports_inside(room: Path) -> Graph:
    """Return the imports between the modules of a package, with subpackages as single nodes."""
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


def test_no_import_cycles_inside_a_package() -> None:
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


def test_a_subpackage_counts_as_one_module() -> None:
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
    """Return the lines of code that name mpi4py; comments and docstrings may mention it."""
    if path == MPI_MODULE or b"mpi4py" not in path.read_bytes():
        return []
    # Since Python 3.12 an f-string is several tokens.
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


def test_every_module_states_its_purpose() -> None:
    assert _against(_sources(*PROJECT), lambda path: not _facts(path).docstring.strip()) == {}


def _too_long(path: Path) -> list[str]:
    functions = _facts(path).functions
    return [f"{name}: {length} lines" for name, length in functions if length > MAX_FUNCTION_LINES]


def test_functions_are_short() -> None:
    assert _against(_sources(*PROJECT), _too_long) == {}


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["--no-such-option"], []])
def test_immediate_answers_import_nothing_slow(run: Run, arguments: list[str]) -> None:
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
