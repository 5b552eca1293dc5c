"""Reports of unexpected exceptions.

For a defect in a tool, a report is written to a file that the user can send to the maintainers. For
a bug in a user's own task, the traceback is printed once on standard error, even if it occurred on
every rank.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from pcircle.core.errors import Defect, package_problem
from pcircle.core.writing import write_all
from pcircle.transport._exit import print_error


def write_report(error: BaseException, doing: str) -> str:
    """Write the error with its traceback to a new file; return a message that names the file.

    If no file can be written, the message contains the traceback.
    """
    import platform
    import tempfile
    import traceback

    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    facts = f"python {platform.python_version()} on {platform.platform()}\n{sys.argv!r}\n"
    summary = f"{type(error).__name__}: {error}"
    try:
        directory = report_directory()
        os.makedirs(directory, 0o700, exist_ok=True)
        descriptor, path = tempfile.mkstemp(".txt", "pcircle-defect-", directory)
        try:
            whole = f"{facts}while {doing}\n\n{text}"
            write_all(descriptor, whole.encode(errors="backslashreplace"))
        finally:
            os.close(descriptor)
    except OSError as trouble:
        return f"{summary} (no report could be written: {trouble})\n{text}"
    return f"{summary}; a report is in {path}"


def report_directory() -> str:
    """Return the directory for reports; it does not depend on the working directory."""
    state = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):
        state = os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(state, "pcircle")


class CrashReporter:
    """Writes unexpected exceptions in a tool to a file, and names it in the message."""

    def package_problem(self, error: BaseException) -> str:
        """Return a message if a required package caused the error, otherwise an empty string."""
        return package_problem(error)

    def explain(self, error: BaseException, doing: str) -> str:
        """Return the reason why the job ends, for rank 0 to print."""
        return write_report(error, doing)

    def late(self, rank: int, reason: str, code: int) -> None:
        """Print a reason that came too late to reach rank 0; `code` is the exit code so far."""
        print_error(f"rank {rank}: {reason}")


_MAX_DOING = 300  # characters: an item may be long


_BEGIN = "Traceback (most recent call last):\n"


class TracebackReporter(CrashReporter):
    """Reports unexpected exceptions in a user's own task with their tracebacks."""

    def package_problem(self, error: BaseException) -> str:
        """Return an empty string, because the task itself may import the package."""
        return ""

    def explain(self, error: BaseException, doing: str) -> str:
        """Return a description of what was being done, followed by the traceback."""
        import traceback

        lines = traceback.format_exception(type(error), error, error.__traceback__)
        return f"exception while {_short(doing)}:\n{''.join(lines).rstrip()}"

    def late(self, rank: int, reason: str, code: int) -> None:
        """Print the reason, unless the job has already failed because of a defect."""
        if code != Defect.exit_code:
            super().late(rank, reason, code)


def without_repeated_tracebacks(reasons: Sequence[str]) -> list[str]:
    """Return the reasons to print for the author of a task, with only the first traceback."""
    tracebacks = [reason for reason in reasons if _BEGIN in reason]
    shown = [reason for reason in reasons if reason not in tracebacks]
    if tracebacks:
        shown.append(tracebacks[0])
    if len(tracebacks) > 1:
        ends = {reason.rpartition("\n")[2] for reason in tracebacks}
        description = "the same" if len(ends) == 1 else "another exception"
        shown.append(f"(and {description} on {len(tracebacks) - 1} other ranks or items)")
    return shown


def _short(doing: str) -> str:
    return doing if len(doing) <= _MAX_DOING else doing[:_MAX_DOING] + "..."
