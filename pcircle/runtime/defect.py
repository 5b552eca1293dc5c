"""What is kept when the program itself is at fault: a file that can be sent in."""

from __future__ import annotations

import os
import sys

from pcircle.writing import write_all


def write_report(error: BaseException, doing: str) -> str:
    """Write the error with its traceback to a new file; returns a sentence that names it."""
    import platform
    import tempfile
    import traceback

    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    facts = f"python {platform.python_version()} on {platform.platform()}\n{sys.argv!r}\n"
    summary = f"{type(error).__name__}: {error}"
    try:
        descriptor, path = tempfile.mkstemp(prefix="pcircle-defect-", suffix=".txt")
        try:
            whole = f"{facts}while {doing}\n\n{text}"
            write_all(descriptor, whole.encode(errors="backslashreplace"))
        finally:
            os.close(descriptor)
    except OSError as trouble:
        return f"{summary} (no report could be written: {trouble})\n{text}"
    return f"{summary}; a report is in {path}"
