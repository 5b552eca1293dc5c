"""The import finder finds the same modules as Python, or defers to Python."""

from __future__ import annotations

import importlib.util
import os
import sys
import zipfile
from collections.abc import Iterator
from importlib.machinery import ExtensionFileLoader, ModuleSpec, PathFinder
from pathlib import Path

import pytest

from pcircle.core.import_finder import ImportFinder, install
from tests.conftest import ROOT, Run

_OF_PYTHON = ("json", "_json", "collections", "curses", "tomllib", "ctypes", "_ctypes", "math")
_OF_OTHERS = ("msgspec", "xxhash", "lru", "mpi4py", "numpy", "rich")


def _own() -> Iterator[str]:
    for path in sorted((ROOT / "pcircle").rglob("*.py")):
        if path.name != "__main__.py":
            yield ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def _folders(name: str) -> list[str] | None:
    above = name.rpartition(".")[0]
    return [str(ROOT / above.replace(".", "/"))] if above else None


def _described(spec: ModuleSpec | None) -> object:
    if spec is None:
        return None
    inside = spec.submodule_search_locations
    return spec.name, spec.origin, spec.cached, spec.parent, inside and list(inside)


def test_modules_equal_those_of_python() -> None:
    for name in [*_own(), *_OF_PYTHON, *_OF_OTHERS]:
        found = ImportFinder().find_spec(name, _folders(name))
        by_python = PathFinder.find_spec(name, _folders(name))
        if found is None:  # built into the interpreter, or nowhere
            assert by_python is None, name
            continue
        assert _described(found) == _described(by_python)
        assert by_python is not None
        assert isinstance(found.loader, type(by_python.loader)), name


def test_an_extension_module_is_found_among_others(tmp_path: Path) -> None:
    suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
    for name in ("fast.py", f"fast{suffix}"):
        (tmp_path / name).touch()
    spec = ImportFinder().find_spec("fast", [str(tmp_path)])
    assert spec is not None
    assert isinstance(spec.loader, ExtensionFileLoader)
    assert spec.origin == str(tmp_path / f"fast{suffix}")


@pytest.mark.parametrize(
    "kind", ["namespace", "archive", "relative", "compiled", "later", "missing"]
)
def test_unclear_cases_are_left_to_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """This holds even if a later folder contains a module of that name."""
    (tmp_path / "last").mkdir()
    folder, last = tmp_path / "folder", str(tmp_path / "last")
    finder = ImportFinder()
    if kind == "archive":
        with zipfile.ZipFile(folder, "w") as archive:
            archive.writestr("thing.py", "")
    else:
        folder.mkdir()
    if kind == "namespace":
        (folder / "thing").mkdir()
    elif kind == "compiled":
        (folder / "thing.pyc").touch()
    elif kind == "relative":
        monkeypatch.chdir(tmp_path)
        folder = Path("folder")
    if kind in ("later", "missing"):
        assert finder.find_spec("thing", [last]) is None
    (tmp_path / "last" / "thing.py").touch()
    if kind == "missing":
        assert finder.find_spec("other", [last]) is None
        return
    assert finder.find_spec("thing", [str(folder), last]) is None
    if kind == "later":
        finder.invalidate_caches()
        assert finder.find_spec("thing", [str(folder), last]) is not None


def test_a_missing_folder_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "thing.py").touch()
    assert ImportFinder().find_spec("thing", [str(tmp_path / "none"), str(tmp_path)]) is not None


_PROGRAM = """
import os, sys
from pcircle.core.import_finder import ImportFinder, install
install()
sys.path.insert(0, sys.argv[1])
import thing
print(thing.VALUE)
print(open(thing.__cached__, "rb").read(4) == __import__("importlib.util").util.MAGIC_NUMBER)
"""


def test_compiled_files_are_written_used_and_replaced(run: Run, tmp_path: Path) -> None:
    """The files are Python's own, which Python's finder uses as well."""
    environment = {name: text for name, text in os.environ.items() if "BYTECODE" not in name}
    module = tmp_path / "thing.py"
    for value in (1, 1, 22):
        module.write_text(f"VALUE = {value}\n")
        done = run([sys.executable, "-c", _PROGRAM, str(tmp_path)], env=environment)
        assert done.stdout.decode().split() == [str(value), "True"], done.stderr
        plain = [sys.executable, "-c", "import thing; print(thing.VALUE)"]
        assert run(plain, env=environment, cwd=tmp_path).stdout.split() == [b"%d" % value]


@pytest.fixture
def _as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.mark.usefixtures("_as_before")
def test_the_finder_directly_precedes_that_of_python() -> None:
    before = list(sys.meta_path)
    install()
    at = before.index(PathFinder)
    assert sys.meta_path[:at] == before[:at]
    assert isinstance(sys.meta_path[at], ImportFinder)
    assert sys.meta_path[at + 1 :] == before[at:]


@pytest.mark.usefixtures("_as_before")
@pytest.mark.parametrize("folder", [os.path.dirname(sys.executable), str(ROOT)])
def test_only_the_folder_of_commands_leaves_the_path(folder: str) -> None:
    sys.path.insert(0, folder)
    remaining = sys.path[1:]
    install()
    assert sys.path == (remaining if folder != str(ROOT) else [folder, *remaining])


@pytest.mark.usefixtures("_as_before")
def test_an_interpreter_without_pythons_finder_is_left_alone() -> None:
    sys.meta_path.remove(PathFinder)
    before = list(sys.meta_path)
    install()
    assert sys.meta_path == before


_DEFERRING = """
import sys
from pcircle.core.import_finder import install
sys.path.remove("")
install()
import uuid, textwrap
import platform
from gettext import ngettext
kinds = [type(sys.modules[name]).__name__ for name in ("platform", "textwrap", "gettext")]
print(*kinds, platform.system(), type(platform).__name__)
print(platform.machine(), type(platform).__name__, textwrap.dedent(" a"), uuid.uuid4().version)
"""


def test_a_deferred_module_is_read_when_it_is_used(run: Run) -> None:
    system, machine = os.uname().sysname, os.uname().machine
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = run([sys.executable, "-c", _DEFERRING], env=environment)
    words = done.stdout.decode().split()
    kind = "_DeferredModule"
    assert words == [kind, kind, kind, system, kind, machine, "module", "a", "4"], done.stderr
