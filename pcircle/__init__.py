"""pcircle: parallel file tools on a work-stealing engine.

`copy`, `sign`, `check`, `profile`, `find`, `entries`, `compare`, `mirror`, `remove`, `change` and
`broadcast` are the tools as functions. Importing the package itself imports nothing of it: a tool's
start-up pays only for what that tool uses.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pcircle.cli.progress import ProgressView
    from pcircle.core.errors import (
        Defect,
        Interrupted,
        PcircleError,
        StoppedEarly,
        Terminated,
        UsageError,
    )
    from pcircle.library import (
        broadcast,
        change,
        check,
        compare,
        copy,
        entries,
        find,
        mirror,
        profile,
        remove,
        sign,
    )
    from pcircle.library.stream import Results

__all__ = [
    "Defect",
    "Interrupted",
    "PcircleError",
    "ProgressView",
    "Results",
    "StoppedEarly",
    "Terminated",
    "UsageError",
    "__version__",
    "broadcast",
    "change",
    "check",
    "compare",
    "copy",
    "entries",
    "find",
    "mirror",
    "profile",
    "remove",
    "sign",
]

_HOMES = {"ProgressView": "pcircle.cli.progress", "Results": "pcircle.library.stream"}

__version__ = "1.0.0.dev0"


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'pcircle' has no attribute '{name}'")
    from importlib import import_module

    home = "pcircle.library" if name.islower() else _HOMES.get(name, "pcircle.core.errors")
    return getattr(import_module(home), name)
