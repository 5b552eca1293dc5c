"""Distributions are whole and reproducible, and recipes ask for what the package asks for."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

import pcircle
from docs.generate.completions import PLACES
from pcircle.tools.commands import COMMANDS
from tests.conftest import ROOT, Run

PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
PACKAGING = ROOT / "packaging"
EASYCONFIG = PACKAGING / "easybuild" / f"pcircle-{pcircle.__version__}-gompi-2025b.eb"
BACKEND = """
import sys
from setuptools import build_meta
print(getattr(build_meta, "build_" + sys.argv[1])(sys.argv[2]))
"""
# Beside what is tracked: what setuptools writes.
WRITTEN = re.compile(r"PKG-INFO|setup\.cfg|pcircle\.egg-info/.*")
# Under which names package managers have a distribution.
CONDA_NAMES = {"xxhash": "python-xxhash"}
# Those that come with others: numpy, rich.
WITHIN = {"SciPy-bundle": "numpy", "Python-bundle-PyPI": "rich", "python-xxhash": "xxhash"}


def _required(name: str = "dependencies") -> dict[str, str]:
    """The least versions of what pyproject.toml requires, by name."""
    block = re.search(rf"^{name} = \[(.*?)\]$", PYPROJECT, re.MULTILINE | re.DOTALL)
    assert block is not None
    return dict(re.findall(r'"([\w-]+)>=([\d.]+)"', block[1]))


def _tracked() -> list[str]:
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    done = subprocess.run([git, "-C", ROOT, "ls-files", "-z"], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"git does not list this checkout: {done.stderr!r}")
    return [name for name in done.stdout.decode().split("\0") if name and (ROOT / name).exists()]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what is tracked, which building writes into."""
    return _copied(tmp_path_factory.mktemp("checkout"))


def _copied(folder: Path) -> Path:
    for name in _tracked():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target)  # with the times of now
    return folder


def _built(run: Run, source: Path, kind: str, folder: Path, **variables: str) -> Path:
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environ |= variables
    environ["SOURCE_DATE_EPOCH"] = "1700000000"
    folder.mkdir()
    done = run([sys.executable, "-c", BACKEND, kind, folder], cwd=source, env=environ)
    assert done.returncode == 0, done.stderr[-2000:]
    return folder / done.stdout.decode().splitlines()[-1]


@pytest.fixture(scope="module")
def wheel(run: Run, checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel."""
    return _built(run, checkout, "wheel", tmp_path_factory.mktemp("wheel") / "dist")


@pytest.fixture(scope="module")
def unpacked(run: Run, checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, unpacked."""
    place = tmp_path_factory.mktemp("sdist")
    with tarfile.open(_built(run, checkout, "sdist", place / "dist")) as archive:
        archive.extractall(place, filter="data")
    return place / f"pcircle-{pcircle.__version__}"


def test_the_source_distribution_is_whole(unpacked: Path) -> None:
    there = {str(path.relative_to(unpacked)) for path in unpacked.rglob("*") if path.is_file()}
    assert {name for name in there if not WRITTEN.fullmatch(name)} == set(_tracked())


def test_its_tests_run_from_it(run: Run, unpacked: Path) -> None:
    """Those of a leaf, of a tool, and of the documentation."""
    tests = ["tests/unit/test_units.py", "tests/unit/test_reference.py", "tests/test_packaging.py"]
    environ = os.environ | {"PYTHONPATH": str(unpacked)}
    environ.pop("PCIRCLE_REQUIRE_NATIVE", None)  # nothing is compiled there
    done = run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests],
        cwd=unpacked,
        env=environ,
    )
    assert done.returncode == 0, done.stdout[-3000:]


def test_the_wheel_is_the_same_wherever_it_is_built(
    run: Run, wheel: Path, unpacked: Path, tmp_path: Path
) -> None:
    """In another directory, of files with other times, and of the source distribution."""
    for number, source in enumerate((_copied(tmp_path / "other"), unpacked)):
        again = _built(run, source, "wheel", tmp_path / f"dist-{number}")
        assert again.name == wheel.name
        assert again.read_bytes() == wheel.read_bytes()


def test_a_wheel_that_was_made_without_a_compiler_is_pure(run: Run, tmp_path: Path) -> None:
    """It installs on any machine, and its name says so; one with the C module tells for which."""
    made = _built(run, _copied(tmp_path / "copy"), "wheel", tmp_path / "dist", CC="false")
    assert made.name == f"pcircle-{pcircle.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(made) as archive:
        assert not [name for name in archive.namelist() if name.endswith(".so")]
        assert "Root-Is-Purelib: true" in archive.read(_wheel_file()).decode()


def test_a_wheel_with_the_c_module_is_for_all_versions_of_python(wheel: Path) -> None:
    if "abi3" not in wheel.name:
        pytest.skip("there is no compiler, or it lacks the headers of Python")
    assert re.fullmatch(r"pcircle-.*-cp310-abi3-linux_\w+\.whl", wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        modules = [name for name in archive.namelist() if name.endswith(".so")]
        assert modules == ["pcircle/fs/native/_native.abi3.so"]
        assert "Root-Is-Purelib: false" in archive.read(_wheel_file()).decode()
        assert b"RUNPATH" not in archive.read(modules[0])


def _wheel_file() -> str:
    return f"pcircle-{pcircle.__version__}.dist-info/WHEEL"


def test_the_wheel_has_what_shells_and_man_look_for(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        text = archive.read(f"pcircle-{pcircle.__version__}.dist-info/entry_points.txt").decode()
        metadata = archive.read(f"pcircle-{pcircle.__version__}.dist-info/METADATA").decode()
    data = f"pcircle-{pcircle.__version__}.data/data/"
    shared = {str(path.relative_to(ROOT)) for path in (ROOT / "share").rglob("*") if path.is_file()}
    assert {name.removeprefix(data) for name in names if name.startswith(data)} == shared
    assert all(any(name.startswith(place) for name in shared) for place in PLACES.values())
    programs = re.findall(r"^(\S+) = ", text, re.MULTILINE)
    assert set(programs) == {each.command_line.split()[0] for each in COMMANDS} - {"python"}
    assert not [name for name in names if name.startswith(("tests/", "docs/", "packaging/"))]
    for minor in range(10, 14):
        assert f"Classifier: Programming Language :: Python :: 3.{minor}\n" in metadata
    assert "Home-page" not in metadata  # there is none yet


def test_the_recipe_for_conda() -> None:
    recipe = yaml.safe_load((PACKAGING / "conda" / "recipe.yaml").read_text(encoding="utf-8"))
    assert recipe["package"] == {"name": "pcircle", "version": pcircle.__version__}
    asked = dict(re.findall(r"([\w-]+) >=([\d.]+)", "\n".join(recipe["requirements"]["run"])))
    python = asked.pop("python")
    assert python == _required_python()
    assert asked == {CONDA_NAMES.get(name, name): least for name, least in _required().items()}
    host = "\n".join(recipe["requirements"]["host"])
    assert f"setuptools >={_required('requires')['setuptools']}" in host
    assert f"python >={python}" in host


def _required_python() -> str:
    found = re.search(r'^requires-python = ">=([\d.]+)"$', PYPROJECT, re.MULTILINE)
    assert found is not None
    return found[1]


def _spack(which: Callable[[ast.Call], bool]) -> Iterator[str]:
    tree = ast.parse((PACKAGING / "spack" / "py-pcircle" / "package.py").read_bytes())
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and which(node):
            yield ast.literal_eval(node.args[0])


def _is(name: str, *, optional: bool | None = None) -> Callable[[ast.Call], bool]:
    def test(call: ast.Call) -> bool:
        when = any(keyword.arg == "when" for keyword in call.keywords)
        is_it = isinstance(call.func, ast.Name) and call.func.id == name
        return is_it and (optional is None or when == optional)

    return test


def test_the_package_for_spack() -> None:
    assert list(_spack(_is("version"))) == [pcircle.__version__]
    needed = _required() | {"setuptools": _required("requires")["setuptools"]}
    asked = {f"py-{name}@{least}:" for name, least in needed.items()}
    asked |= {f"python@{_required_python()}:", "c"}
    assert set(_spack(_is("depends_on", optional=False))) == asked
    extras = [_required(extra) for extra in ("plot", "parquet", "notebook")]
    optional = {f"py-{name}@{least}:" for extra in extras for name, least in extra.items()}
    assert set(_spack(_is("depends_on", optional=True))) == optional


def test_the_easyconfig() -> None:
    """It names versions, each at least what is required; numpy and rich come in bundles."""
    tree = ast.parse(EASYCONFIG.read_bytes())
    values = {
        node.targets[0].id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    assert ast.literal_eval(values["version"]) == pcircle.__version__
    toolchain = ast.literal_eval(values["toolchain"])
    assert EASYCONFIG.stem == f"pcircle-{pcircle.__version__}-gompi-{toolchain['version']}"
    named = {each[0]: each[1] for each in ast.literal_eval(values["dependencies"])}
    extensions = values["exts_list"]
    assert isinstance(extensions, ast.List)
    for each in extensions.elts[:-1]:
        name, version, options = ast.literal_eval(each)
        named[name] = version
        assert re.fullmatch("[0-9a-f]{64}", options["checksums"][0])
    assert _numbers(named.pop("Python")) >= _numbers(_required_python())
    required = _required()
    assert {WITHIN.get(name, name) for name in named} == required.keys()
    for name, version in named.items():
        if not name.endswith(("bundle", "bundle-PyPI")):
            assert _numbers(version) >= _numbers(required[WITHIN.get(name, name)]), name


def _numbers(version: str) -> list[int]:
    return list(map(int, version.split(".")))


def test_the_containerfile_names_what_there_is() -> None:
    text = (PACKAGING / "Containerfile").read_text(encoding="utf-8")
    image = re.search(r"^FROM python:(3\.\d+)-slim AS build$", text, re.MULTILINE)
    assert image is not None
    assert f"Programming Language :: Python :: {image[1]}" in PYPROJECT
    extra = re.search(r"\[(\w+)\]", text)
    assert extra is not None
    assert f"\n{extra[1]} = [" in PYPROJECT
    hadolint = shutil.which("hadolint")
    if hadolint is not None:
        done = subprocess.run(
            [hadolint, PACKAGING / "Containerfile"], capture_output=True, check=False
        )
        assert done.returncode == 0, done.stdout
