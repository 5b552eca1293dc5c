"""An import finder that makes two file system calls per module, where Python makes six or more.

Ten thousand ranks that start together read the same two hundred modules from one shared file
system. For each module, Python stats every folder on the search path until one contains the module.
It then stats the source twice, opens the compiled file, and stats that twice. This finder lists
each folder once, and one stat of the source shows whether the compiled file is current, so only a
stat and an open remain. Python still handles the compiled files: they are validated as usual, and
written if missing.

A command installs the finder for its own process (`pcircle.cli.startup`), ahead of Python's
`PathFinder`. Importing the package as a library leaves Python's finders alone. Python's finders
also handle everything that is not a plain file in a listed folder: namespace packages, archives,
and files that were created after the listing. (A file of the same name in a later folder hides
these, however.)

While msgspec is being imported, typing_extensions is hidden. msgspec imports it if it is installed,
but needs nothing from it since Python 3.11. The imports of typing_extensions take a tenth of the
startup time. Other modules that every start would import but few runs use are executed on first use
(`_DEFERRED`).

This module imports nothing from the package.
"""

from __future__ import annotations

import errno
import os
import sys
from _thread import RLock
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    ExtensionFileLoader,
    ModuleSpec,
    PathFinder,
    SourceFileLoader,
)
from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from importlib.abc import Loader
    from typing import Any


_OWN = f"{__name__.partition('.')[0]}."
_READ_BYTES = 256 << 10
# Attributes that importers use immediately are predefined: argparse imports functions from gettext,
# and uuid calls `platform.system`.
_DEFERRED: dict[str, dict[str, object]] = {
    "gettext": {"gettext": str, "ngettext": lambda one, many, count: one if count == 1 else many},
    "msgspec.inspect": {},
    "msgspec.toml": {},
    "msgspec.yaml": {},
    "platform": {"system": lambda: os.uname().sysname},
    "textwrap": {},
}


def install() -> None:
    """Insert the finder before Python's, and remove the interpreter's own folder from `sys.path`.

    That folder comes first if a script is installed next to the interpreter, and contains no
    modules.
    """
    if sys.path and sys.path[0] == os.path.dirname(sys.executable):
        del sys.path[0]
    if PathFinder in sys.meta_path:
        sys.meta_path.insert(sys.meta_path.index(PathFinder), ImportFinder())


class UnreadableModuleError(ModuleNotFoundError):
    """A module, or a folder that may contain it, cannot be read."""

    def __init__(self, name: str, path: str) -> None:
        reason = os.strerror(errno.EACCES)
        super().__init__(f"cannot import {name}: '{path}': {reason}", name=name, path=path)


class ImportFinder:
    """A meta path finder for modules in folders, like `importlib.machinery.PathFinder`."""

    def __init__(self) -> None:
        self._listed: dict[str, frozenset[str] | None] = {}

    def find_spec(
        self, name: str, folders: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module in `sys.path`, or in the folders of its parent package.

        Return None to leave the decision to the next finder. Raise UnreadableModuleError if the
        module is nowhere else than in a folder that cannot be read, if at all.
        """
        denied: list[str] = []
        spec = self._find(name, folders, denied)
        if spec is None and denied:
            spec = PathFinder.find_spec(name, folders)
            if spec is None or spec.loader is None:  # or an unreadable folder without a module
                raise UnreadableModuleError(name, denied[0])
        return spec

    def _find(
        self, name: str, folders: Sequence[str] | None, denied: list[str]
    ) -> ModuleSpec | None:
        """Find a module like `find_spec`; add folders and files that cannot be read to `denied`."""
        last = name.rpartition(".")[2]
        if name == "typing_extensions" and _is_for_msgspec():
            raise ModuleNotFoundError(f"msgspec does not need {name}", name=name)
        if folders is not None and name.startswith(_OWN) and name.count(".") > 1:
            # Nearly every name that is looked up in our packages exists there as a .py file, so
            # trying it costs less than listing the folder.
            path = os.path.join(folders[0], last)
            inside = os.path.join(path, "__init__.py")
            found = _source(name, f"{path}.py", None, denied)
            return found or _source(name, inside, [path], denied)
        searched = sys.path if folders is None else folders
        for at, folder in enumerate(searched):
            names = self._names(folder)
            if names is None:
                denied += _unreadable(searched[at:], last)
                return None
            path = os.path.join(folder, last)
            if last in names:
                return _source(name, os.path.join(path, "__init__.py"), [path], denied)
            for suffix in EXTENSION_SUFFIXES:
                if last + suffix in names:
                    loader = ExtensionFileLoader(name, path + suffix)
                    return _at(name, path + suffix, loader, None)
            if f"{last}.py" in names:
                return _source(name, f"{path}.py", None, denied)
            if f"{last}.pyc" in names:  # Python's finder handles modules without source
                return None
        return None

    def invalidate_caches(self) -> None:
        """Forget all listings; called by `importlib.invalidate_caches`."""
        self._listed.clear()

    def _names(self, folder: str) -> frozenset[str] | None:
        """Return the names in a folder, empty if it does not exist, or None if it is unreadable."""
        if folder not in self._listed:
            names = None
            if os.path.isabs(folder):
                try:
                    names = frozenset(os.listdir(folder))
                except FileNotFoundError:
                    names = frozenset()
                except OSError:
                    pass  # Python's finder handles archives and unreadable folders
            self._listed[folder] = names
        return self._listed[folder]


def _is_for_msgspec() -> bool:
    """Return whether msgspec is being imported but has not imported its module `json` yet."""
    is_begun = "msgspec" in sys.modules and "msgspec.json" not in sys.modules
    return is_begun and sys.version_info >= (3, 11)


def _unreadable(folders: Sequence[str], name: str) -> Iterator[str]:
    """Yield the folders that cannot be read, or those for a package of this name in them."""
    for folder in folders:
        inside = os.path.join(folder, name)
        for path in (folder, inside):
            if os.path.isdir(path) and not os.access(path, os.R_OK | os.X_OK):
                yield path


def _source(name: str, path: str, inside: list[str] | None, denied: list[str]) -> ModuleSpec | None:
    try:
        status = os.stat(path)
    except PermissionError:
        denied.append(os.path.dirname(path))
        return None
    except OSError:
        return None
    loader = _DeferringLoader if name in _DEFERRED else _Loader
    return _at(name, path, loader(name, path, status), inside)


def _at(name: str, path: str, loader: Loader, inside: list[str] | None) -> ModuleSpec:
    """Make a spec as `importlib.util.spec_from_file_location` would, without that import."""
    spec = ModuleSpec(name, loader, origin=path)
    spec.submodule_search_locations = inside
    spec.has_location = True
    return spec


class _Loader(SourceFileLoader):
    """Python's loader of source files, with the status that the finder has already looked up."""

    def __init__(self, name: str, path: str, status: os.stat_result) -> None:
        super().__init__(name, path)
        self._status = status

    def path_stats(self, path: str) -> Mapping[str, float]:
        """Return the modification time and the size of the source."""
        return {"mtime": self._status.st_mtime, "size": self._status.st_size}

    def get_data(self, path: str) -> bytes:
        """Read a file without querying its size."""
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except PermissionError:
            if path == self.path:
                raise UnreadableModuleError(self.name, path) from None
            raise  # Python then reads the source instead of the compiled file
        try:
            return b"".join(iter(lambda: os.read(fd, _READ_BYTES), b""))
        finally:
            os.close(fd)


class _DeferringLoader(_Loader):
    """A loader that executes a module when an attribute is used that `_DEFERRED` lacks."""

    def exec_module(self, module: ModuleType) -> None:
        """Give the module its predefined attributes, and defer its execution."""
        vars(module).update(_DEFERRED[self.name])
        module.__class__ = _DeferredModule

    def read(self, module: ModuleType) -> None:
        """Execute the module."""
        super().exec_module(module)


class _DeferredModule(ModuleType):
    """A module that is executed when a missing attribute is first used."""

    def __getattr__(self, name: str) -> Any:
        if name == "__path__":  # `from module import name` looks it up; packages already have it
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        with _READING:
            loader = self.__spec__ and self.__spec__.loader
            if type(self) is _DeferredModule and isinstance(loader, _DeferringLoader):
                loader.read(self)
                self.__class__ = ModuleType  # type: ignore[assignment]
        return getattr(self, name)


_READING = RLock()
