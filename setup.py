"""Add the C module to the package, for the interpreters that can load it.

`pyproject.toml` has no way to build it only for some. If it cannot be compiled, the installation
succeeds without it, and the wheel gets the name of a pure one.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

_IS_SUPPORTED = sys.implementation.name == "cpython" and not sysconfig.get_config_var(
    "Py_GIL_DISABLED"
)


class OptionalExtension(build_ext):
    """Builds the module if there is a compiler."""

    def run(self) -> None:
        super().run()
        if any(self._is_missing(each) for each in self.extensions):
            self.distribution.ext_modules = []

    def build_extension(self, ext: Extension) -> None:
        """Remove the file of an earlier build first, which must not replace one that fails."""
        for place in {self.get_ext_fullpath(ext.name), self._path_in_build_lib(ext)}:
            Path(place).unlink(missing_ok=True)
        super().build_extension(ext)

    def _path_in_build_lib(self, ext: Extension) -> str:
        return os.path.join(self.build_lib, self.get_ext_filename(self.get_ext_fullname(ext.name)))

    def _is_missing(self, extension: Extension) -> bool:
        return not Path(self.get_ext_fullpath(extension.name)).exists()


class Wheel(bdist_wheel):
    """A wheel with the module is for one platform and all versions of Python; others are pure."""

    def run(self) -> None:
        self.run_command("build_ext")
        self.root_is_pure = not self.distribution.ext_modules
        super().run()

    def get_tag(self) -> tuple[str, str, str]:
        if not self.distribution.ext_modules:
            return "py3", "none", "any"
        return super().get_tag()


_NATIVE = Extension(
    "pcircle.fs.native._native",
    ["pcircle/fs/native/_native.c"],
    define_macros=[("Py_LIMITED_API", "0x030A0000")],
    extra_compile_args=["-std=c11", "-O2", "-g0", "-fvisibility=hidden"],
    extra_link_args=["-Wl,--build-id=none", "-Wl,-s"],
    py_limited_api=True,
    optional=True,
)

if _IS_SUPPORTED:
    setup(
        ext_modules=[_NATIVE],
        cmdclass={"build_ext": OptionalExtension, "bdist_wheel": Wheel},
        options={"bdist_wheel": {"py_limited_api": "cp310"}},
    )
else:
    setup()
