"""System calls that run millions of times, implemented in C and, equivalently, in Python.

`module` is the C module `_native` if it was built and can be loaded, and otherwise `pure`, which
accepts the same arguments and returns the same results. `reason` states why the C module is not
used. ``PCIRCLE_NATIVE=0`` selects `pure`. With ``PCIRCLE_REQUIRE_NATIVE=1``, a C module that is
missing, not loadable or built for another interface is an error.

Most results contain bytes with one 64-bit number for each name; see `pure`.
"""

from __future__ import annotations

import os
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from pcircle.fs.native.interface import INTERFACE

__all__ = [
    "ask_attributes",
    "change_names",
    "copy_files",
    "description",
    "format_entries",
    "is_native",
    "list_directory",
    "make_directories",
    "module",
    "numbers",
    "read_files",
    "reason",
    "scan_directories",
    "settle_open",
    "stat_names",
    "stat_open",
    "twin",
    "unlink_names",
]


def twin() -> ModuleType:
    """Return the functions in Python, which most runs do not need."""
    return import_module("pcircle.fs.native.pure")


def _choose() -> tuple[ModuleType, str]:
    """Return the module to use, and the reason if it is not the C module."""
    if os.environ.get("PCIRCLE_NATIVE") == "0":
        return twin(), "PCIRCLE_NATIVE is 0"
    try:
        found = import_module("pcircle.fs.native._native")
    except ModuleNotFoundError:
        reason = "the C module was not built when pcircle was installed"
    except ImportError as error:
        reason = f"the C module cannot be loaded: {error}"
    else:
        interface = getattr(found, "INTERFACE", None)
        if interface == INTERFACE:
            return found, ""
        reason = f"the C module has interface {interface}, and {INTERFACE} is needed"
    if os.environ.get("PCIRCLE_REQUIRE_NATIVE") == "1":
        raise ImportError(f"PCIRCLE_REQUIRE_NATIVE is set, and {reason}")
    return twin(), reason


module: ModuleType
reason: str
module, reason = _choose()
is_native: bool = not reason


def description() -> str:
    """Return whether the C module is used or, if not, the reason."""
    return "in C" if is_native else f"in Python, which is slower: {reason}"


if TYPE_CHECKING:
    from pcircle.fs.native.pure import (
        ask_attributes,
        change_names,
        copy_files,
        format_entries,
        list_directory,
        make_directories,
        read_files,
        scan_directories,
        settle_open,
        stat_names,
        stat_open,
        unlink_names,
    )
else:
    ask_attributes = module.ask_attributes
    change_names = module.change_names
    copy_files = module.copy_files
    format_entries = module.format_entries
    list_directory = module.list_directory
    make_directories = module.make_directories
    read_files = module.read_files
    scan_directories = module.scan_directories
    settle_open = module.settle_open
    stat_names = module.stat_names
    stat_open = module.stat_open
    unlink_names = module.unlink_names


def numbers(result: bytes) -> list[int]:
    """Return the numbers that a result contains, one for each name."""
    return memoryview(result).cast("q").tolist()
