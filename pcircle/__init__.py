"""pcircle: parallel file tools on a work-stealing engine.

`copy`, `sign`, `check`, `profile`, `find`, `entries`, `compare`, `mirror`, `remove`, `change` and
`broadcast` are the tools as functions, and the other names are the types of their arguments and
results, and their errors. Importing the package itself imports nothing of it: a tool's start-up
pays only for what that tool uses.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pcircle.cli.program import TreeReport
    from pcircle.cli.progress import ProgressView
    from pcircle.cli.report import RootSignature
    from pcircle.core.errors import (
        Defect,
        Interrupted,
        PcircleError,
        StoppedEarly,
        Terminated,
        UsageError,
    )
    from pcircle.jobs.failures import FailedEntry
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
    from pcircle.tools.common.copy_console import CopyReport
    from pcircle.tools.fbcast.command import BadNode, BroadcastReport
    from pcircle.tools.fls.rows import ListRow
    from pcircle.tools.fmirror.report import MirrorReport
    from pcircle.tools.fprof.reports.report import ProfileReport
    from pcircle.tools.fsum.command import ReportedDifference, SumReport

__all__ = [
    "BadNode",
    "BroadcastReport",
    "CopyReport",
    "Defect",
    "FailedEntry",
    "Interrupted",
    "ListRow",
    "MirrorReport",
    "PcircleError",
    "ProfileReport",
    "ProgressView",
    "ReportedDifference",
    "Results",
    "RootSignature",
    "StoppedEarly",
    "SumReport",
    "Terminated",
    "TreeReport",
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

_HOMES = {
    "BadNode": "pcircle.tools.fbcast.command",
    "BroadcastReport": "pcircle.tools.fbcast.command",
    "CopyReport": "pcircle.tools.common.copy_console",
    "FailedEntry": "pcircle.jobs.failures",
    "ListRow": "pcircle.tools.fls.rows",
    "MirrorReport": "pcircle.tools.fmirror.report",
    "ProfileReport": "pcircle.tools.fprof.reports.report",
    "ProgressView": "pcircle.cli.progress",
    "ReportedDifference": "pcircle.tools.fsum.command",
    "Results": "pcircle.library.stream",
    "RootSignature": "pcircle.cli.report",
    "SumReport": "pcircle.tools.fsum.command",
    "TreeReport": "pcircle.cli.program",
}

__version__ = "1.0.0.dev0"


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'pcircle' has no attribute '{name}'")
    from importlib import import_module

    home = "pcircle.library" if name.islower() else _HOMES.get(name, "pcircle.core.errors")
    return getattr(import_module(home), name)
